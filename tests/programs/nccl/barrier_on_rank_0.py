"""Rank 0 calls a barrier after it has logged, the others do not and go on to the next step.

Fault: nccl-mismatch
Hang: rank-conditional-collective; ranks: 0; says: barrier_on_rank_0.py:21; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
loss = torch.ones(16, device="cuda")
for step in range(100):
    dist.all_reduce(loss)
    torch.cuda.synchronize()
    if step == 3 and dist.get_rank() == 0:
        print("loss", float(loss[0]))
        dist.barrier()
