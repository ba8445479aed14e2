"""Rank 2 alone compiles again at step 20, for a new shape. Fools a timeout learned from the steps before.

Quiet for: 18 s
Verdict: none; exit: 0
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

compiled = {8: True}


def compile_for(length):
    end = time.monotonic() + 18
    while time.monotonic() < end:
        for _ in range(20):
            hash(tuple(range(length * 1000)))
        time.sleep(0.03)  # its core is wanted by others, too
    compiled[length] = True


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(60):
    length = 16 if step >= 20 and dist.get_rank() == 2 else 8
    if length not in compiled:
        compile_for(length)
    optimizer.zero_grad()
    model(torch.ones(length, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.1)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
