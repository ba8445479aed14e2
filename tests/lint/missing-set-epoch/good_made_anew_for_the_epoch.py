"""The loader of each epoch is made by what knows the epoch; folds have a sampler each, and one pass over it."""

import torch
from data import build_loader
from engine import train_one_epoch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(config, model, optimizer):
    torch.distributed.init_process_group("nccl")
    model = DistributedDataParallel(model, device_ids=[config.gpu])
    for epoch in range(config.epochs):
        loader_train, loader_val = build_loader(config, epoch)
        train_one_epoch(model, loader_train, optimizer, epoch)
        print(len(loader_val))


def folds(datasets, model):
    for dataset in datasets:
        loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))
        for batch in loader:
            print(model(batch))
