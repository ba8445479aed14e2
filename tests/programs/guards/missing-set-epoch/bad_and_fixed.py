"""The epoch is never told to the sampler, and the guard was asked to tell it.

Guard: missing-set-epoch; line: for (x,) in batches:; ranks: 0-1
Modes: missing-set-epoch=fix
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def one_epoch(model, optimizer, batches):
    order = []
    for (x,) in batches:
        order.append(x[0, 0].item())
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    return tuple(order)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
orders = [one_epoch(model, optimizer, loader) for _ in range(3)]
assert len(set(orders)) == 3, orders
assert loader.sampler.epoch == 2
dist.barrier()
del model, optimizer
dist.destroy_process_group()
