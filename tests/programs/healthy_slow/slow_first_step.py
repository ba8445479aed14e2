"""The first step compiles kernels for 15 s on every rank. Fools a timeout that counts from the first collective.

Quiet for: 15 s
Verdict: none; exit: 0
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def compile_kernels(seconds):
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        tried += sum(value * value for value in range(100_000)) % 7
        time.sleep(0.02)  # its core is wanted by others, too
    return tried


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(50):
    if step == 0:
        compile_kernels(15)
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
