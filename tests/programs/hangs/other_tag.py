"""Rank 0 sends with one tag, rank 1 receives with another: gloo pairs by tags, and both wait.

Verdict: group-deadlock; ranks: 0-1; says: 1 waits for 0 in recv from rank 0 with tag 13, begun at other_tag.py:18
On two ranks.
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for microbatch in range(100):
    activations, mask = torch.ones(16), torch.ones(4)
    if rank == 0:
        works = [dist.isend(activations, dst=1, tag=0), dist.isend(mask, dst=1, tag=1 + microbatch % 12)]
    else:
        tag = 1 + microbatch % 13  # one too many: equal for the first twelve
        works = [dist.irecv(mask, src=0, tag=tag), dist.irecv(activations, src=0, tag=0)]
    for work in works:
        work.wait()
