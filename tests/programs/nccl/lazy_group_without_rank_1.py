"""A group is connected at its first collective, which rank 1 does not come to: the hosts of the others wait inside it.

Options: --on-hang kill
Verdict: stuck-in-python; ranks: 1; says: lazy_group_without_rank_1.py:22
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
experts = dist.new_group([0, 1, 2])
for step in range(100):
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    if dist.get_rank() == 1 and step == 3:
        time.sleep(3600)
    if step == 3:
        dist.all_reduce(numbers, group=experts)
