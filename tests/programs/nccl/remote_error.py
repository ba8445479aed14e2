"""On rank 1 NCCL gets an asynchronous error; its own exception names it, and the others wait.

Fault: nccl-error at=4 code=6 rank=1
Without stacks: unknown by recorders
Hang: nccl-error; ranks: 1; side: device
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(100):
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
