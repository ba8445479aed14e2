"""Rank 1 has one number more in its fourth all_reduce than the others.

Fault: nccl-mismatch
Hang: collective-shape-mismatch; ranks: 1; says: size_differs.py:18; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
for step in range(100):
    size = 17 if dist.get_rank() == 1 and step == 3 else 16
    numbers = torch.ones(size, device="cuda")
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
