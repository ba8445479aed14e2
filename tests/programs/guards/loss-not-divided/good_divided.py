"""Each loss is divided; then what it is the mean of; then losses are sums.

Guard: none
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def synced(model, number, each):
    return model.no_sync() if number % each else contextlib.nullcontext()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = TensorDataset(torch.randn(64, 4) + dist.get_rank(), torch.randn(64, 1))
loader = DataLoader(data, batch_size=1)
for number, (x, y) in enumerate(loader, 1):
    with synced(model, number, 4):
        if number <= 16:
            loss = torch.nn.functional.mse_loss(model(x), y) / 4
        elif number <= 32:
            loss = (torch.nn.functional.mse_loss(model(x), y, reduction="none") / 4).mean()
        else:
            loss = torch.nn.functional.mse_loss(model(x), y, reduction="sum")
        loss.backward()
    if number % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
