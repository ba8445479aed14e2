"""Each rank gathers parts of another length, in one coalesced call; rank 2 sleeps before its fourth gather.

Hang: stuck-in-python; ranks: 2; says: uneven_all_gather.py:20; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
rank, size = dist.get_rank(), dist.get_world_size()
mine = torch.ones(4 + rank, device="cuda")
parts = [torch.empty(4 + r, device="cuda") for r in range(size)]
for step in range(100):
    if rank == 2 and step == 3:
        time.sleep(3600)
    dist.all_gather(parts, mine, async_op=True).wait()
    torch.cuda.synchronize()
