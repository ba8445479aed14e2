"""Ten batches, four to a step: the last two are thrown away in each epoch.

Guard: leftover-steps-dropped; line: for number, (x, y) in enumerate(loader):; ranks: 0-1
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def one_epoch(model, loader, optimizer):
    optimizer.zero_grad()
    for number, (x, y) in enumerate(loader):
        steps = (number + 1) % 4 == 0
        with contextlib.nullcontext() if steps else model.no_sync():
            (torch.nn.functional.mse_loss(model(x), y) / 4).backward()
        if steps:
            optimizer.step()
            optimizer.zero_grad()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = TensorDataset(torch.randn(10, 4) + dist.get_rank(), torch.randn(10, 1))
loader = DataLoader(data, batch_size=1)
for _ in range(3):
    one_epoch(model, loader, optimizer)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
