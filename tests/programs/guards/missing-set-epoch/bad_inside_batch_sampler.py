"""The sampler stands inside a batch sampler, and is told no epoch.

Guard: missing-set-epoch; line: for (x,) in batches:; ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset


def one_epoch(model, optimizer, batches):
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_sampler=BatchSampler(DistributedSampler(data), 2, drop_last=True))
for _ in range(3):
    one_epoch(model, optimizer, loader)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
