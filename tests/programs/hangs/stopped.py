"""Rank 1 is stopped by a signal, as a debugger or a batch system that suspends jobs would do it.

Verdict: process-stopped; ranks: 1; says: SIGSTOP
On two ranks.
"""

import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    if step == 3 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
