"""The data set of rank 1 sleeps in a worker of its loader; the others wait in loss.cpu().

Hang: stuck-in-dataloader; ranks: 1; says: loader_of_rank_1_sleeps.py:22; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])


class Shards(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, n):
        if RANK == 1 and n == 30:
            time.sleep(3600)
        return torch.ones(4)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", timeout=timedelta(seconds=12))
    for batch in torch.utils.data.DataLoader(Shards(), batch_size=4, num_workers=1):
        loss = batch.cuda().sum()
        dist.all_reduce(loss)
        loss.cpu()
