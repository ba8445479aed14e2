"""Rank 2 has its metrics in double precision after a reload, the others in single: again a peer is aborted, not rank 2.

Verdict: collective-shape-mismatch; ranks: 2; exit: 1|134
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    metrics = torch.ones(16)
    if step == 4 and dist.get_rank() == 2:
        metrics = torch.tensor(metrics.tolist(), dtype=torch.float64)
    dist.all_reduce(metrics)
