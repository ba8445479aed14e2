"""Rank 1 is in a barrier of the group for the CPU while rank 0 waits for the device's group: each for the other.

Ranks: 2
Options: --on-hang kill
Verdict: group-deadlock; ranks: 0-1; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
cpu = dist.new_group([0, 1], backend="gloo")
numbers = torch.ones(16, device="cuda")
for step in range(100):
    if dist.get_rank() == 1 and step == 3:
        dist.barrier(group=cpu)
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    if dist.get_rank() == 0 and step == 3:
        dist.barrier(group=cpu)
