from itertools import islice

import torch
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, path, rank, world_size):
        self.path, self.rank, self.world_size = path, rank, world_size

    def __iter__(self):
        with open(self.path) as lines:
            yield from islice(lines, self.rank, None, self.world_size)  # expect: loader-lengths-differ


def train(model, path, rank, world_size):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(Stream(path, rank, world_size), batch_size=8)
    for x in loader:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
