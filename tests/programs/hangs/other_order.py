"""Rank 3 reads an older plan, in which the loss is summed before the batch is broadcast; the others do the opposite.

Verdict: collective-mismatch; ranks: 3
"""

import torch
import torch.distributed as dist

PLANS = {1: [dist.all_reduce, dist.broadcast], 2: [dist.broadcast, dist.all_reduce]}

dist.init_process_group("gloo")
for step in range(100):
    plan_version = 1 if step == 4 and dist.get_rank() == 3 else 2
    tensor = torch.ones(64)
    for collective in PLANS[plan_version]:
        if collective is dist.broadcast:
            collective(tensor, src=0)
        else:
            collective(tensor)
