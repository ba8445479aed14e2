"""A generator of this file goes over the loader again and again, whatever it calls it."""

import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def endless(items):
    while True:
        for item in items:  # expect: missing-set-epoch
            yield item


def train(model, optimizer, dataset, steps):
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, rank=dist.get_rank()))
    batches = endless(loader)
    for _ in range(steps):
        optimizer.zero_grad()
        model(next(batches)).mean().backward()
        optimizer.step()
