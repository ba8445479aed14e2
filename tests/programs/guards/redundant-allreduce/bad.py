"""Four micro-batches a step, and an all-reduce after each.

Guard: redundant-allreduce; line: (model(x).square().mean() / 4).backward(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def accumulate(model, x):
    (model(x).square().mean() / 4).backward()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    for _ in range(4):
        accumulate(model, torch.randn(2, 4))
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
