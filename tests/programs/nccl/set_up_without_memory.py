"""Another process holds nearly all memory of rank 1's device: the communicator has no room.

Ranks: 2
Fault: memory-taken device=1 bytes=7500M pid=1
Verdict: nccl-error|cuda-oom; ranks: 1; says: out of memory; code: 1 of rank 1
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
