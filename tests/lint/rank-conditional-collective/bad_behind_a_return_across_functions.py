import os

import torch
from torch import distributed as dist


def average(value):
    total = torch.tensor(value)
    dist.all_reduce(total)  # expect: rank-conditional-collective
    return total / dist.get_world_size()


def evaluate(model, loader):
    main = int(os.environ["RANK"]) == 0
    if not main:
        return None
    loss = 0.0
    for batch in loader:
        loss = model(batch).item()
    return average(loss)
