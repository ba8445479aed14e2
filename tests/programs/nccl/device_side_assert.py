"""A kernel of rank 2 finds an index out of range.

Fault: device-assert kernel=FillFunctor at=6 rank=2
Verdict: cuda-error; ranks: 2; says: assert
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
for step in range(100):
    numbers = torch.full((1 << 16,), 1.0, device="cuda")
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
