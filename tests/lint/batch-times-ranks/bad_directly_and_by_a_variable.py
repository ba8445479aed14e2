import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def loaders(train, other, args):
    world_size = dist.get_world_size()
    sampler = DistributedSampler(train)
    first = DataLoader(train, batch_size=args.batch_size * world_size, sampler=sampler)  # expect: batch-times-ranks
    batch = 32 * dist.get_world_size()  # expect: batch-times-ranks
    second = DataLoader(other, batch, sampler=DistributedSampler(other))
    return first, second
