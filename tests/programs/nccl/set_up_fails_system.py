"""On rank 1 a system call of the communicator's set-up fails; the others only see that it is gone.

Fault: comm-error code=2 at=1 rank=1
Verdict: nccl-error; ranks: 1; says: unhandled system error; code: 1 of rank 1
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
