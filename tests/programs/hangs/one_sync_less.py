"""Rank 1 resumes one micro-batch later, so its last group stays under no_sync: it synchronises once less than the rest.

Verdict: collective-mismatch; ranks: 1
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
first = 1 if dist.get_rank() == 1 else 0  # where the last run stopped
for _epoch in range(10):
    for micro in range(first, 16):
        last = (micro - first + 1) % 4 == 0
        with contextlib.nullcontext() if last else model.no_sync():
            model(torch.ones(4, 8)).sum().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()
