import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def forever(batches):
    while True:
        for batch in batches:
            yield batch


class OnDevice:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:
            yield batch.cuda()


def train(dataset, model, optimizer, epochs):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset)
    loader = OnDevice(DataLoader(dataset, batch_size=8, sampler=sampler))
    for epoch in epochs:
        for batch in forever(loader):  # expect: missing-set-epoch
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
