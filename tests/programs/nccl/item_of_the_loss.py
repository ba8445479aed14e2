"""Rank 1 waits for a file in its data set; the others are in loss.item(), whose value needs the all-reduce.

Hang: stuck-in-python; ranks: 1; says: item_of_the_loss.py:20; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))


def sample(step):
    """The shard of rank 1 is not there yet."""
    while dist.get_rank() == 1 and step == 3 and not os.path.exists("/nowhere/shard"):
        time.sleep(1)
    return torch.ones(4, device="cuda")


for step in range(100):
    loss = sample(step).sum()
    dist.all_reduce(loss)
    print(step, loss.item())
