"""Healthy: the first step takes long, as compilation does, and longest on rank 1; the others wait on their devices.

Ranks: 2
Verdict: none
"""

import os
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
numbers = torch.ones(16, device="cuda")
for step in range(20):
    end = time.time() + (8 + 4 * dist.get_rank() if step == 0 else 0)
    while time.time() < end:
        sum(n * n for n in range(100_000))
        time.sleep(0.02)  # its core is wanted by others, too
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
dist.destroy_process_group()
