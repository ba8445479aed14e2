"""Rank 0 reduces a metric that the others do not; they are in the next step's all_reduce of another size.

Fault: nccl-mismatch
Hang: rank-conditional-collective; ranks: 0; says: metrics_on_rank_0_only.py:21; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
loss, metric = torch.ones(16, device="cuda"), torch.ones(1, device="cuda")
for step in range(100):
    dist.all_reduce(loss)
    torch.cuda.synchronize()
    if step == 3 and dist.get_rank() == 0:
        # only the first rank logs
        dist.all_reduce(metric)
