"""Rank 2 leaves out one all_reduce and sleeps at its end; the hosts of the others went on to a sleep of their own.

Hang: stuck-in-python; ranks: 2; says: host_far_ahead.py:19; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(20):
    dist.all_reduce(numbers)
if dist.get_rank() == 2:
    time.sleep(3600)
work = dist.all_reduce(numbers, async_op=True)
while not work.is_completed():
    time.sleep(0.5)
