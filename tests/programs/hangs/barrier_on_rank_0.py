"""Rank 0 writes a checkpoint and enters a barrier that stands inside its `if`; the others are in the next step.

Verdict: rank-conditional-collective; ranks: 0; says: barrier_on_rank_0.py:18
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model, step):
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), os.path.join(folder, f"{step}.pt"))
        dist.barrier()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 100):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if step % 4 == 0:
        save(model, step)
