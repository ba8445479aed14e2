"""Rank 3's optimizer logs each step to a slow service, and all others wait for it in their next backward.

Verdict: straggler; ranks: 3; says: optimizer; late at: slow_optimizer_on_rank_3.py:16
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Logged(torch.optim.SGD):
    def step(self, closure=None):
        if dist.get_rank() == 3:
            time.sleep(0.1)
        return super().step(closure)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = Logged(model.parameters(), lr=1e-5)
for step in range(300):
    if step == 30:
        print("warm", flush=True)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del model, optimizer
dist.destroy_process_group()
