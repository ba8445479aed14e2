"""Rank 1 keeps every activation until its device is full; the others wait for its all_reduce.

Ranks: 2
Verdict: cuda-oom; ranks: 1; says: memory_runs_out.py:18; code: 1 of rank 1
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers, kept = torch.ones(16, device="cuda"), []
for step in range(100):
    if dist.get_rank() == 1:
        kept.append(torch.empty(1 << 28, device="cuda"))
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
