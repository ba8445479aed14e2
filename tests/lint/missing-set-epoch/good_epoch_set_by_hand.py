from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Endless:
    def __init__(self, loader):
        self.loader = loader
        self.sampler = loader.sampler
        self.batches = iter(loader)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.sampler.epoch += 1
            self.batches = iter(self.loader)
            return next(self.batches)


def build(dataset):
    return Endless(DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset)))


def train(dataset, model, optimizer):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler)
    for epoch in range(3):
        sampler.epoch = epoch
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
