"""Two losses of two kinds, each with its backward; and a closure that is called more than once.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    model(torch.randn(2, 4)).abs().mean().backward()
    optimizer.step()
for _ in range(6):
    for _ in range(2):  # the first backward only looks where to go
        optimizer.zero_grad()
        model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
