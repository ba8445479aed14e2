"""Rank 0 writes a log of its optimizer's steps to a slow disk.

Verdict: straggler; ranks: 0; says: in its optimizer's step
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def log(optimizer, args, kwargs):
    if dist.get_rank() == 0:
        time.sleep(0.05)  # the fault


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
optimizer.register_step_pre_hook(log)
for _ in range(10):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
