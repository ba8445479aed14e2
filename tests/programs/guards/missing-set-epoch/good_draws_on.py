"""A sampler of the script's own draws from a generator that goes on from epoch to epoch; the guard is asked to mend.

Guard: none
Modes: missing-set-epoch=fix
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Weighted(DistributedSampler):
    def __init__(self, data, weights):
        super().__init__(data)
        self.weights, self.generator = weights, torch.Generator().manual_seed(0)

    def __iter__(self):
        drawn = torch.multinomial(self.weights, self.total_size, replacement=True, generator=self.generator)
        return iter(drawn[self.rank :: self.num_replicas].tolist())


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_size=2, sampler=Weighted(data, torch.ones(16)))
for _ in range(3):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
assert loader.sampler.epoch == 0
dist.barrier()
del model, optimizer
dist.destroy_process_group()
