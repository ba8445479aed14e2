"""Each rank waits for its left neighbour's block before it has begun to send its own.

Verdict: group-deadlock; ranks: 0-3; says: ring_of_irecvs.py:16
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
keys, incoming = torch.ones(64), torch.empty(64)
for step in range(100):
    dist.all_reduce(keys)
    if step == 4:
        arriving = dist.irecv(incoming, (rank - 1) % size)
        arriving.wait()
        leaving = dist.isend(keys, (rank + 1) % size)
        leaving.wait()
