"""The number is that of all ranks, and is divided; a loader without a sampler feeds nn.DataParallel."""

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def loaders(train, args):
    world_size = dist.get_world_size()
    sampler = DistributedSampler(train, num_replicas=world_size)
    one = DataLoader(train, batch_size=args.batch_size // world_size, sampler=sampler)
    two = DataLoader(train, batch_size=2 * args.batch_size // world_size, sampler=sampler)
    three = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    print("samples a step:", args.batch_size * world_size)
    return one, two, three
