"""Rank 1 has one number more in its fourth all_reduce than the others.

Fault: nccl-mismatch
Verdict: collective-shape-mismatch; ranks: 1; says: size_differs.py:17; side: host
"""

import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
for step in range(100):
    size = 17 if dist.get_rank() == 1 and step == 3 else 16
    numbers = torch.ones(size, device="cuda")
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
