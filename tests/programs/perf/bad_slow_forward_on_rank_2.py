"""Rank 2 computes in its forward what the others have cached.

Verdict: straggler; ranks: 2; says: in its forward
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Cached(torch.nn.Linear):
    def forward(self, batch):
        if dist.get_rank() == 2:
            time.sleep(0.05)  # the fault
        return super().forward(batch)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(Cached(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for _ in range(10):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
