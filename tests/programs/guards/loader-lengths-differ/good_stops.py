"""Lengths differ, and all ranks leave the loop after as many steps; an evaluation goes through all that each one has.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(9, 4)[dist.get_rank() :: dist.get_world_size()] + dist.get_rank())
loader = DataLoader(data, batch_size=1)
for _ in range(2):
    for (x,), _number in zip(loader, range(4), strict=False):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        for (x,) in loader:
            model.module(x)
dist.barrier()
del model
dist.destroy_process_group()
