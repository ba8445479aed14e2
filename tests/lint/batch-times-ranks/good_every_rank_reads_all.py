"""Each rank reads the batch of all and takes its part of it."""

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler


def shares(train, test, args):
    world_size, rank = dist.get_world_size(), dist.get_rank()
    loader = DataLoader(train, batch_size=args.batch_size * world_size, sampler=RandomSampler(train))
    for batch in loader:
        yield batch[rank::world_size]
    yield from DataLoader(test, batch_size=args.batch_size, sampler=DistributedSampler(test))
