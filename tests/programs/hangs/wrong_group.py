"""Rank 1 sums its loss over all ranks, where its peers sum over their pairs: it waits for 2 and 3, and 0 for it.

Verdict: collective-mismatch|group-deadlock; ranks: 1|0-3
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
mine = pairs[rank // 2]
for step in range(100):
    group = None if step == 4 and rank == 1 else mine
    dist.all_reduce(torch.ones(64), group=group)
    dist.barrier(group=mine)
