"""Rank 1 raises, and its `finally` calls a barrier where rank 0 reduces: its error is never seen.

Verdict: collective-mismatch; ranks: 1; says: ValueError: the shard is torn (barrier_in_finally.py:15)
On two ranks.
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradients = torch.ones(4096)
for step in range(100):
    try:
        if step == 4 and dist.get_rank() == 1:
            raise ValueError("the shard is torn")
        dist.all_reduce(gradients)
    finally:
        if step == 4:
            dist.barrier()
