"""Rank 1 broadcasts where the others reduce; all hosts go on to the next step's synchronize().

Fault: nccl-mismatch
Hang: rank-conditional-collective; ranks: 1; says: broadcast_against_all_reduce.py:18; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(100):
    if dist.get_rank() == 1 and step == 3:
        dist.broadcast(numbers, 0)
    else:
        dist.all_reduce(numbers)
    torch.cuda.synchronize()
