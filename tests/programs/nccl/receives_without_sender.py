"""Rank 1 receives what rank 0 does not send: rank 0 is in the all_reduce that follows, which rank 1 has not enqueued.

Ranks: 2
Without stacks: unknown by logs
Hang: group-deadlock; ranks: 0-1; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(100):
    if dist.get_rank() == 1:
        dist.recv(numbers, 0)
        torch.cuda.synchronize()
    elif step != 3:
        dist.send(numbers, 1)
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
