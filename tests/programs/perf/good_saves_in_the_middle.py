"""Rank 0 writes a checkpoint in the steps that are profiled; the others wait for it that once.

Verdict: none
"""

import io
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(12):
    torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,))).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 5 and dist.get_rank() == 0:
        torch.save(model.module.state_dict(), io.BytesIO())
        time.sleep(0.3)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
