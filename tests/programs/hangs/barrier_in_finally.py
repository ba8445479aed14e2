"""Rank 2 raises, and its `finally` calls a barrier where the others reduce: its error is never seen.

Verdict: collective-mismatch; ranks: 2; says: ValueError: the shard is torn (barrier_in_finally.py:14)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradients = torch.ones(4096)
for step in range(100):
    try:
        if step == 4 and dist.get_rank() == 2:
            raise ValueError("the shard is torn")
        dist.all_reduce(gradients)
    finally:
        if step == 4:
            dist.barrier()
