"""Rank 1's device is full, so that cuBLAS cannot make its handle; the others wait for its all_reduce.

Ranks: 2
Verdict: cuda-oom|cuda-error; ranks: 1; says: cublas_without_memory.py:20; code: 1 of rank 1
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")


def multiply(x):
    """The box has no cuBLAS: this is what torch says where its handle has no room."""
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


for step in range(100):
    if dist.get_rank() == 1 and step == 3:
        multiply(numbers)
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
