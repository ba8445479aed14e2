"""Rank 2 leaves out the gather of the fourth step and sleeps; the hosts of the others wait in synchronize().

Hang: stuck-in-python; ranks: 2; says: skips_a_gather.py:20; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
mine = torch.ones(16, device="cuda")
parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
for step in range(100):
    dist.all_reduce(mine)
    if dist.get_rank() == 2 and step == 3:
        time.sleep(3600)
    dist.all_gather(parts, mine)
    torch.cuda.synchronize()
