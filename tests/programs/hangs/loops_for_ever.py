"""Rank 1 draws samples until one is accepted, which none is: it burns CPU in a loop of its own.

Verdict: stuck-in-python; ranks: 1; says: draw_accepted
On two ranks.
"""

import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def draw_accepted(limit):
    while True:
        value = random.random()
        if value > limit:
            return value


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    limit = 1.5 if step == 4 and dist.get_rank() == 1 else 0.5
    batch = torch.full((4, 8), draw_accepted(limit))
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
