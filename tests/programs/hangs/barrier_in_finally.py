"""Rank 2 raises, and its `finally` calls a barrier where the others reduce: what it raised is the cause, not the barrier.

Verdict: rank-exception; ranks: 2; exit: 1|134; says: the shard is torn
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
