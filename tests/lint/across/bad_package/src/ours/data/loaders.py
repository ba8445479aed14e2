import torch
from torch.utils.data import DataLoader

from ..names import BATCH


def sampler_of(dataset):
    return torch.utils.data.distributed.DistributedSampler(dataset)


def training_loader(dataset):
    return DataLoader(dataset, batch_size=BATCH, sampler=sampler_of(dataset))
