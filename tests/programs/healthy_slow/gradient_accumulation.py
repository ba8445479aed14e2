"""Thirty slow micro-batches under no_sync before each optimizer step. Fools a rule that knows collectives alone.

Quiet for: 22 s
Verdict: none; exit: 0
On two ranks.
"""

import contextlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(12):
    micro_batches = 4 if step != 8 else 30
    for micro in range(micro_batches):
        last = micro == micro_batches - 1
        with contextlib.nullcontext() if last else model.no_sync():
            model(torch.ones(4, 8)).sum().backward()
        time.sleep(0.02 if step < 8 else 0.7)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
