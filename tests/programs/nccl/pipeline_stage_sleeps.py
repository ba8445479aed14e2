"""Stages send and receive; stage 1 sleeps, stage 2 waits for it, stage 0 has sent and waits for the gradient.

Without stacks: unknown by logs
Hang: stuck-in-python; ranks: 1; says: pipeline_stage_sleeps.py:22; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
rank, last = dist.get_rank(), dist.get_world_size() - 1
for step in range(100):
    x = torch.ones(16, device="cuda")
    if rank > 0:
        dist.recv(x, rank - 1)
    if rank == 1 and step == 3:
        time.sleep(3600)
    if rank < last:
        dist.send(x, rank + 1)
        dist.recv(x, rank + 1)
    if rank > 0:
        dist.send(x, rank - 1)
    torch.cuda.synchronize()
