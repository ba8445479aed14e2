"""Rank 1 prepares its data for longer than a monitored barrier waits: torch names it, and raises on rank 0 alone.

Verdict: collective-not-joined; ranks: 1; exit: 1; says: late_at_monitored_barrier.py:19
On two ranks.
"""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for _step in range(5):
    dist.all_reduce(torch.ones(8))
if rank == 1:
    time.sleep(60)
dist.monitored_barrier(timeout=timedelta(seconds=2))
dist.destroy_process_group()
