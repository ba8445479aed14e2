"""Rank 2 raises an error of its own; the others are in synchronize().

Verdict: rank-exception; ranks: 2; says: raises.py:17; code: 1 of rank 2
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(100):
    if dist.get_rank() == 2 and step == 5:
        raise ValueError("the tokenizer has no such token")
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
