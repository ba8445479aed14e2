from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler


def of_batches(args, data):
    sampler = DistributedSampler(data)
    batches = BatchSampler(sampler, args.batch_size, drop_last=True)
    return DataLoader(data, batch_sampler=batches)


def by_keywords(data, **more):
    sampler = DistributedSampler(data)
    more["sampler"] = sampler
    return DataLoader(data, 64, **more)


def for_another(data, other):
    sampler = DistributedSampler(data)
    return sampler, DataLoader(other, 64)
