"""The count goes on over epochs; then the leftover is stepped behind the loop.

Guard: none
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def one_epoch(model, loader, optimizer, number):
    for x, y in loader:
        number += 1
        with contextlib.nullcontext() if number % 4 == 0 else model.no_sync():
            (torch.nn.functional.mse_loss(model(x), y) / 4).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    return number


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = TensorDataset(torch.randn(10, 4) + dist.get_rank(), torch.randn(10, 1))
loader = DataLoader(data, batch_size=1)
seen = 0
for _ in range(4):
    seen = one_epoch(model, loader, optimizer, seen)
for _ in range(3):
    left = one_epoch(model, loader, optimizer, 0) % 4
    if left:
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
