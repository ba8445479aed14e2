"""Rank 1 leaves out the all-reduce of one bad batch; all later ones pair wrongly, until it is at the barrier alone.

Verdict: collective-mismatch; ranks: 1
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weight = torch.zeros(64)
for epoch in range(10):
    for step in range(6):
        gradient = torch.full((64,), float(step))
        if (epoch, step) == (1, 2) and dist.get_rank() == 1:
            gradient[3] = torch.nan
        if gradient.isnan().any():
            continue
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
    dist.barrier()
