"""Another file goes over the loader: it is given it in each epoch."""

import torch
from data import build_loader
from engine import train_one_epoch
from torch.nn.parallel import DistributedDataParallel


def main(config, model, optimizer):
    torch.distributed.init_process_group("nccl")
    model = DistributedDataParallel(model, device_ids=[config.gpu])
    loader_train, loader_val = build_loader(config)
    for epoch in range(config.epochs):
        train_one_epoch(model, loader_train, optimizer, epoch)  # expect: missing-set-epoch
        print(len(loader_val))
