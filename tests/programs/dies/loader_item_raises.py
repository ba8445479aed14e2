"""An item of rank 1's data set raises in a worker of its loader: the place is the line in the data set.

Verdict: rank-exception; ranks: 1; exit: 1; says: loader_item_raises.py:20
On two ranks.
"""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, item):
        if item == 20 and os.environ["RANK"] == "1":
            raise KeyError("label")
        return torch.ones(4)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for batch in DataLoader(Rows(), batch_size=4, num_workers=1):
        dist.all_reduce(batch)
