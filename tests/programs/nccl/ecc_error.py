"""The memory of rank 1's device has an error that ECC does not correct.

Fault: ecc-error kernel=FillFunctor at=400 rank=1
Verdict: gpu-fault; ranks: 1; says: Xid
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
for step in range(10000):
    numbers = torch.full((1 << 16,), 1.0, device="cuda")
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    time.sleep(0.02)
