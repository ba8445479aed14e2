"""Rank 1 sums its loss over all ranks where the others sum over their pairs: 0 waits for 1 in the pair, 1 for all.

Verdict: collective-mismatch; ranks: 1
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
    dist.barrier()
