"""Rank 1 returns before the barrier of the report, and goes into the next step.

Verdict: rank-conditional-collective; ranks: 0; says: returns_early.py:16
On two ranks.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def report(step, loss):
    if dist.get_rank() != 0:
        return
    print(f"step {step}: {loss:.3f}", flush=True)
    dist.barrier()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(1, 100):
    loss = model(torch.ones(4, 8)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 0:
        report(step, loss.item())
