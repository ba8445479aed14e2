import os

import h5py
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import datasets


def train(args, model, losses):
    best = None
    for loss in losses:
        if not best or loss < best and args.rank <= 0:
            torch.save(model.state_dict(), args.save)  # expect: checkpoint-race
            best = loss


class Texts:
    def __init__(self, env, path, gather):
        self.env, self.path, self.gather = env, path, gather

    def update(self, lines):
        if (self.env.dp_rank == 0 or self.gather) and self.env.tp_rank == 0:
            with open(self.path, "a+") as file:  # expect: checkpoint-race
                file.write("\n".join(lines))


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
