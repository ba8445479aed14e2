"""A loader that can be saved in the middle of an epoch (torchdata's, where it is installed) has a sampler, too.

Guard: missing-set-epoch; line: for (x,) in batches:; ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = DataLoader


def one_epoch(model, optimizer, batches):
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = StatefulDataLoader(data, batch_size=2, sampler=DistributedSampler(data))
for _ in range(3):
    one_epoch(model, optimizer, loader)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
