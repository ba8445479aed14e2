"""Rank 1's device is full, so that cuDNN cannot make its handle; the others wait for its all_reduce.

Ranks: 2
Verdict: cuda-oom; ranks: 1; says: cudnn_without_memory.py:20; code: 1 of rank 1
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")


def multiply(x):
    """The box has no cuDNN: this is what torch says where its handle has no room."""
    raise RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")


for step in range(100):
    if dist.get_rank() == 1 and step == 3:
        multiply(numbers)
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
