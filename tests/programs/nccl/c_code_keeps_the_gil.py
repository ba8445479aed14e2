"""Rank 1 is in a C function that keeps the GIL; the others wait on their devices, where the last collective is open.

Hang: stuck-in-native; ranks: 1; says: c_code_keeps_the_gil.py:19; side: host
"""

import ctypes
import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
libc = ctypes.PyDLL(None)
for step in range(100):
    if dist.get_rank() == 1 and step == 3:
        libc.sleep(3600)
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
