"""The loader's first batch, and the first of its second pass in the middle, take long: a cache is filled.

Verdict: none
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Cached(Dataset):
    def __init__(self):
        self.cache = None

    def __len__(self):
        return 4 * 4 * 6

    def __getitem__(self, index):
        if self.cache is None or index == self.cache:
            time.sleep(0.2)
            self.cache = index
        return torch.ones(64), index % 10


dist.init_process_group("gloo")
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = Cached()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        torch.nn.functional.cross_entropy(model(inputs.repeat(16, 1)), labels.repeat(16)).backward()
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
