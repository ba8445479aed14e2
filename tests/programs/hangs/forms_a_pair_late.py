"""Ranks 0 and 1 form a group by themselves, and rank 1 reads its settings before: ranks 2 and 3 take no part in it.

Verdict: stuck-on-io; ranks: 1; says: forms_a_pair_late.py:17
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(3):
    dist.all_reduce(torch.ones(8))
never, other = os.pipe()
if rank == 1:
    settings = os.read(never, 1)
if rank < 2:
    pair = dist.new_group([0, 1], use_local_synchronization=True)
    dist.all_reduce(torch.ones(8), group=pair)
else:
    served = os.read(never, 1)
