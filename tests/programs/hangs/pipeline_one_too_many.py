"""The last stage of a pipeline expects one micro-batch more than is sent; the others wait for it in the barrier.

Verdict: group-deadlock; ranks: 2-3; says: pipeline_one_too_many.py:17
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
stage = torch.nn.Linear(64, 64)
for step in range(100):
    micro_batches = 5 if rank == 3 and step == 3 else 4
    for _ in range(micro_batches):
        hidden = torch.ones(8, 64)
        if rank > 0:
            dist.recv(hidden, rank - 1)
        hidden = stage(hidden).detach()
        if rank < 3:
            dist.send(hidden, rank + 1)
    dist.barrier()
