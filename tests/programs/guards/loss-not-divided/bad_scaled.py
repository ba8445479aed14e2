"""The same through a GradScaler, which divides by its own factor only.

Guard: loss-not-divided; line: scaler.scale(loss).backward(); ranks: 0-1
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def synced(model, number, each):
    return model.no_sync() if number % each else contextlib.nullcontext()


def micro_batch(model, x, y, scaler):
    loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = TensorDataset(torch.randn(32, 4) + dist.get_rank(), torch.randn(32, 1))
loader = DataLoader(data, batch_size=1)
scaler = torch.amp.GradScaler("cpu")
for number, (x, y) in enumerate(loader, 1):
    with synced(model, number, 4):
        micro_batch(model, x, y, scaler)
    if number % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
