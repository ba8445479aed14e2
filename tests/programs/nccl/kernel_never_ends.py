"""On rank 1 a kernel before the fourth all_reduce never ends. All hosts wait in synchronize().

Options: --preset hang
Fault: kernel-hang kernel=FillFunctor at=4 rank=1
Hang: stuck-on-device; ranks: 1; says: kernel_never_ends.py:18; side: device
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
