"""The sampler is given to something of another package, which may set the epoch."""

from ours.loaders import EpochAware
from torch.utils.data import DataLoader, DistributedSampler


def main(data, model, optimizer):
    sampler = DistributedSampler(data)
    loader = EpochAware(DataLoader(data, sampler=sampler), sampler)
    for epoch in range(3):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()
