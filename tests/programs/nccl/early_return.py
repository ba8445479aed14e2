"""Rank 2 leaves the loop early and is done; the others wait for it for ever.

Hang: stuck-in-python; ranks: 2; says: early_return.py:22; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(100):
    if dist.get_rank() == 2 and step == 5:
        break
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
while dist.get_rank() == 2:
    time.sleep(60)
