"""All micro-batches but the last are left out of the reduction.

Guard: none
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    for micro in range(4):
        with contextlib.nullcontext() if micro == 3 else model.no_sync():
            (model(torch.randn(2, 4)).square().mean() / 4).backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
