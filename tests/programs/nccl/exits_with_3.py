"""Rank 1 gives up with an exit code of its own; the job's code is that one.

Verdict: rank-exception; ranks: 1; code: 3 of rank 1
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=90))
numbers = torch.ones(16, device="cuda")
for step in range(100):
    if dist.get_rank() == 1 and step == 5:
        sys.exit(3)
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
