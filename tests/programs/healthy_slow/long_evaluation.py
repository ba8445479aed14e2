"""All ranks evaluate for 15 s without a single collective, and compute. Fools "no collective for 10 s".

Quiet for: 15 s
Verdict: none; exit: 0
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def evaluate(model, seconds):
    total, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        total += sum(model(torch.ones(64, 8)).sum().item() for _ in range(200))
        time.sleep(0.02)  # its core is wanted by others, too
    return total


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(1, 61):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
    if step == 30:
        evaluate(model.module, 15)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
