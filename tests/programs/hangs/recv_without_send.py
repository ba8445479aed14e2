"""Rank 2 expects a tensor that rank 3 never sends: it sits in the barrier behind, and waits for rank 2 there.

Verdict: group-deadlock; ranks: 2-3; says: recv_without_send.py:14
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(100):
    activations = torch.ones(16)
    if rank == 2:
        dist.recv(activations, src=3)
    if rank == 3 and step < 4:
        dist.send(activations, dst=2)
    dist.barrier()
