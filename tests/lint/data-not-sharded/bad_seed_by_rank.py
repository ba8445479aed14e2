import time

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def build(dataset, batch_size):
    seed = int(time.time()) * dist.get_rank()
    sampler = DistributedSampler(dataset, shuffle=True, seed=seed)  # expect: data-not-sharded
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)
