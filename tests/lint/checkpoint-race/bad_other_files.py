import os

import h5py
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import datasets


def loaders(args):
    data = datasets.CIFAR10(root="./data", train=True, download=True)  # expect: checkpoint-race
    return DataLoader(data, sampler=DistributedSampler(data))


def convert(files, path):
    with h5py.File(path, "w") as file:  # expect: checkpoint-race
        file["files"] = files


class Molecules(Dataset):
    def __init__(self, files, path):
        convert(files, path)
        self.rows = h5py.File(path)


def log_rows(args, rows):
    if dist.get_rank() == 0:
        print(len(rows))
    with open(os.path.join(args.out, "log.csv"), "a") as file:  # expect: checkpoint-race
        file.write(",".join(rows))
