"""Ranks 0 and 1 want to exchange a tensor and both begin with recv. Ranks 2 and 3 are at the barrier already.

Verdict: group-deadlock; ranks: 0-1; says: both_receive.py:12
"""

import torch
import torch.distributed as dist


def exchange(mine, peer):
    theirs = torch.empty_like(mine)
    dist.recv(theirs, src=peer)
    dist.send(mine, dst=peer)
    return theirs


dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(4):
    dist.all_reduce(torch.ones(16))
if rank < 2:
    exchange(torch.ones(16), peer=1 - rank)
dist.barrier()
