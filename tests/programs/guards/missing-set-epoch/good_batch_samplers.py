"""Epochs are told where they count: to a batch sampler, to the sampler inside of one, to that of a loader that can be
saved; a batch sampler that goes on drawing, and one that has a seed and no order of its own, need none.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Sampler, TensorDataset

try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = DataLoader


class Buckets(Sampler):
    def __init__(self, length, seed, counts=False, shuffle=True):
        self.length, self.seed, self.counts, self.shuffle, self.epoch = length, seed, counts, shuffle, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        draw = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.length, generator=draw) if self.shuffle else torch.arange(self.length)
        self.epoch += self.counts
        return iter(order[dist.get_rank() :: dist.get_world_size()].view(-1, 2).tolist())

    def __len__(self):
        return self.length // dist.get_world_size() // 2


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
own, counting, ordered = Buckets(16, 3), Buckets(16, 3, counts=True), Buckets(16, 3, shuffle=False)
inner, saved = DistributedSampler(data), DistributedSampler(data)
loaders = [
    *(DataLoader(data, batch_sampler=batches) for batches in (own, counting, ordered)),
    DataLoader(data, batch_sampler=BatchSampler(inner, 2, drop_last=True)),
    StatefulDataLoader(data, batch_size=2, sampler=saved),
]
for epoch in range(3):
    for told in (own, inner, saved):
        told.set_epoch(epoch)
    for loader in loaders:
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
