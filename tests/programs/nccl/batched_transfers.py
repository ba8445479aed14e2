"""Neighbours exchange with batch_isend_irecv in a ring; rank 1 sleeps before its part.

Without stacks: unknown by logs
Hang: stuck-in-python; ranks: 1; says: batched_transfers.py:20; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
rank, size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.ones(16, device="cuda"), torch.empty(16, device="cuda")
for step in range(100):
    if rank == 1 and step == 3:
        time.sleep(3600)
    ops = [dist.P2POp(dist.isend, mine, (rank + 1) % size), dist.P2POp(dist.irecv, theirs, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    torch.cuda.synchronize()
