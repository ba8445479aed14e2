"""All ranks wait for the same service in their own code, and no collective is open anywhere.

Verdict: stuck-in-python; ranks: 0-3; says: all_sleep.py:15
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def wait_for_quota():
    while True:
        time.sleep(2)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if step == 4:
        wait_for_quota()
