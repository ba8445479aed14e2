"""Rank 0 waits for 1, 1 for 2 and 2 for 3, each in a group of two; only rank 3 has anything to answer for.

Verdict: stuck-in-python; ranks: 3; says: subgroup_chain.py:14
"""

import time

import torch
import torch.distributed as dist


def decide():
    while True:
        time.sleep(0.5)


dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = [dist.new_group([first, first + 1]) for first in range(3)]
for step in range(100):
    if rank == 3 and step == 4:
        decide()
    for first in reversed(range(3)):
        if rank in (first, first + 1):
            dist.all_reduce(torch.ones(16), group=pairs[first])
