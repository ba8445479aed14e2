"""On rank 2 CUDA fails within the communicator's set-up; the others only see that it is gone.

Fault: comm-error code=1 at=1 rank=2
Verdict: nccl-error|cuda-error|cuda-oom; ranks: 2; says: unhandled cuda error; code: 1 of rank 2
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
