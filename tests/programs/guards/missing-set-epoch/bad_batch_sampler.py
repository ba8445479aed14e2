"""A batch sampler of the script's own shuffles by seed and epoch, and nobody tells it the epoch.

Guard: missing-set-epoch; line: for (x,) in batches:; ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Buckets(Sampler):
    """Batches of neighbours, dealt out to the ranks in an order that changes with the epoch."""

    def __init__(self, length, size, seed):
        self.batches = [list(range(first, first + size)) for first in range(0, length, size)]
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        draw = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.batches), generator=draw).tolist()
        return iter([self.batches[number] for number in order[dist.get_rank() :: dist.get_world_size()]])

    def __len__(self):
        return len(self.batches) // dist.get_world_size()


def one_epoch(model, optimizer, batches):
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_sampler=Buckets(16, 2, seed=3))
for _ in range(3):
    one_epoch(model, optimizer, loader)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
