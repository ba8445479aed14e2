import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def build(dataset, batch_size, seed):
    torch.manual_seed(seed + dist.get_rank())
    sampler = DistributedSampler(dataset, rank=dist.get_rank(), seed=seed)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)
