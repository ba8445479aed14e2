"""Rank 1 skips FSDP2's backward of a batch without targets, whose gradients the others reduce-scatter.

Verdict: collective-mismatch; ranks: 1
On two ranks.
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(100):
    targets = 0 if step == 4 and dist.get_rank() == 1 else 4
    loss = model(torch.ones(4, 8)).sum()
    if targets:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
