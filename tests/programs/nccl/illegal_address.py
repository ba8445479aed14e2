"""A kernel of rank 1 reads where nothing is; CUDA says so at the next synchronisation.

Fault: illegal-address kernel=FillFunctor at=6 rank=1
Verdict: cuda-error; ranks: 1; says: illegal
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
