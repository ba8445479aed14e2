"""Two nodes: from the tenth operation on nothing passes between them. Every device has enqueued the operation.

Ranks: 1
Devices: 2
Options: --nodes 2
Fault: network-cut at=10 node=1
Hang: unknown
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
