import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save_beside(folder, name, values):
    rank = dist.get_rank()
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    torch.save(values, os.path.join(folder, name, f"{rank}.pt"))


def train(folder, model):
    rank = dist.get_rank()
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
    model = DistributedDataParallel(model)
    torch.save(model.state_dict(), os.path.join(folder, f"{rank}.pt"))
