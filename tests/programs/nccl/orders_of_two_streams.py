"""Both ranks enqueue on two groups without waiting, rank 1 in the other order: the devices wait for one another.

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
first, second = (
    dist.new_group([0, 1], timeout=timedelta(seconds=12)),
    dist.new_group([0, 1], timeout=timedelta(seconds=12)),
)
numbers = torch.ones(16, device="cuda")
for group in (first, second):
    dist.all_reduce(numbers, group=group)
torch.cuda.synchronize()
for step in range(100):
    order = (second, first) if dist.get_rank() == 1 and step == 3 else (first, second)
    for group in order:
        dist.all_reduce(numbers, group=group)
    torch.cuda.synchronize()
