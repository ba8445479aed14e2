"""Rank 2 computes in its forward what the others have cached; FSDP's gathers make all as slow as it is.

Verdict: straggler; ranks: 2; says: slow_forward_on_rank_2.py:17
"""

import gc
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Cached(torch.nn.Linear):
    def forward(self, batch):
        if dist.get_rank() == 2:
            time.sleep(0.25)
        return super().forward(batch)


dist.init_process_group("gloo")
model = torch.nn.Sequential(Cached(8, 8), torch.nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(100):
    if step == 30:
        print("warm", flush=True)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del model, layer, optimizer
gc.collect()  # FSDP's modules and their hooks hold each other, and the group
dist.destroy_process_group()
