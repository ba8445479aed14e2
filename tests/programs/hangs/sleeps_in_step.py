"""Rank 2 retries a service that never answers, with a sleep between its tries; all others wait in backward.

Verdict: stuck-in-python; ranks: 2; says: sleeps_in_step.py:16
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def fetch_schedule(step):
    """The learning rate comes from a service, which is down when rank 2 asks for the fourth time."""
    while dist.get_rank() == 2 and step == 3:
        time.sleep(5)
    return 0.1 / (step + 1)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    optimizer.param_groups[0]["lr"] = fetch_schedule(step)
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
