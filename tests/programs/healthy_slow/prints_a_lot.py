"""Rank 1 prints a long report for 20 s while its peers wait for it. Fools "one rank missing, for longer than ever".

Quiet for: 20 s
Verdict: none; exit: 0
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def report(seconds):
    end, line = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        line += 1
        print(f"sample {line}: " + "x" * 100, flush=True)
        time.sleep(0.002)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(60):
    if step == 30 and dist.get_rank() == 1:
        report(20)
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.1)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
