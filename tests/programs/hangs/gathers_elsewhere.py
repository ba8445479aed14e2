"""Rank 3 gathers at itself what the others gather at rank 0: all have come, nobody is missing, and it does not end.

Verdict: collective-mismatch; ranks: 3; says: gather to rank 3
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(100):
    root = 3 if step == 5 and rank == 3 else 0  # it believes that it has the best loss
    parts = [torch.zeros(4) for _ in range(4)] if rank == root else None
    dist.gather(torch.ones(4), parts, dst=root)
