from torch.utils.data import DataLoader, DistributedSampler


def make_loader(data):
    return DataLoader(data, sampler=DistributedSampler(data))
