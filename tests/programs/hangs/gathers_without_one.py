"""Rank 3 has no hits in its part of the validation set and leaves out gather_object; it is at the barrier.

Verdict: collective-mismatch; ranks: 3
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for epoch in range(100):
    for _ in range(3):
        dist.all_reduce(torch.ones(64))
    hits = [sample for sample in range(8 * rank, 8 * rank + 8) if sample < 32 - 4 * epoch]
    if hits:
        everything = [None] * 4 if rank == 0 else None
        dist.gather_object(hits, everything, dst=0)
    dist.barrier()
