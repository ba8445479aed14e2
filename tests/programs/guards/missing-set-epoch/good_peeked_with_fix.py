"""A batch is peeked at before each epoch, and the epoch is told; the guard may tell it, too.

Guard: none
Modes: missing-set-epoch=fix
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=2, sampler=sampler)
for epoch in range(3):
    next(iter(loader))
    sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
