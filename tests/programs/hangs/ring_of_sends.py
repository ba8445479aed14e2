"""Every rank sends to its right neighbour before it receives from its left one: nobody receives.

Verdict: group-deadlock; ranks: 0-3; says: ring_of_sends.py:18
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
block, received = torch.ones(4096), torch.empty(4096)
for step in range(100):
    if step < 4:
        handle = dist.isend(block, (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
        handle.wait()
    else:  # "isend is not needed here"
        dist.send(block, (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
