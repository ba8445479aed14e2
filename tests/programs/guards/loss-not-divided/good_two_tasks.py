"""Two losses of one batch from one line, then one of a batch each of two data sets: sums that are meant.

Guard: none
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def backward(model, x, y, *, last):
    with contextlib.nullcontext() if last else model.no_sync():
        torch.nn.functional.mse_loss(model(x), y).backward()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = TensorDataset(torch.randn(16, 4) + dist.get_rank(), torch.randn(16, 1))
loaders = DataLoader(data, batch_size=1), DataLoader(data, batch_size=2)
for x, y in loaders[0]:
    for task in range(2):
        backward(model, x, y, last=task == 1)
    optimizer.step()
    optimizer.zero_grad()
for batches in zip(*loaders, strict=False):
    for task, (x, y) in enumerate(batches):
        backward(model, x, y, last=task == 1)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
