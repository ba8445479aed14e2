"""As kernel_never_ends, without start times: every host has enqueued the all_reduce, so no rank can be named.

Fault: kernel-hang kernel=FillFunctor at=4 rank=1
Hang: unknown
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
