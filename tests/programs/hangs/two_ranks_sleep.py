"""Ranks 1 and 2 drew a bad batch and wait for an operator; 0 and 3 are in FSDP2's next all-gather.

Verdict: stuck-in-python; ranks: 1-2; says: two_ranks_sleep.py:16
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def check(batch):
    while batch.isnan().any():
        print("bad batch, waiting for an operator", flush=True)
        time.sleep(3600)


dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(100):
    batch = torch.ones(4, 8)
    if step == 3 and dist.get_rank() in (1, 2):
        batch[0, 0] = torch.nan
    check(batch)
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
