"""Rank 1 cannot read a shard; it tells the others by a small reduction of its own, which meets their large one.

Verdict: collective-mismatch; ranks: 1; exit: 1|134; says: reduces_after_raising.py:17
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradients = torch.ones(1 << 16)
for step in range(100):
    try:
        if step == 4 and dist.get_rank() == 1:
            raise OSError("no such shard")
        dist.all_reduce(gradients)
    except OSError:
        dist.all_reduce(torch.ones(1))
        raise
