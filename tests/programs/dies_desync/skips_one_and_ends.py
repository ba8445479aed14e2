"""Rank 1 leaves out one all-reduce, pairs wrongly in silence, and is done first: its peers lose the connection.

Verdict: collective-mismatch|rank-exited-early; ranks: 1; exit: 1
On two ranks.
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(12):
    if step == 4 and dist.get_rank() == 1:
        continue
    dist.all_reduce(torch.full((64,), float(step)))
dist.destroy_process_group()
