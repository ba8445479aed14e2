"""Both ranks receive first and send later: each device waits for the other's send.

Ranks: 2
Without stacks: unknown by logs
Hang: group-deadlock; ranks: 0-1; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
mine, theirs = torch.ones(16, device="cuda"), torch.empty(16, device="cuda")
other = 1 - dist.get_rank()
dist.all_reduce(mine)
for step in range(100):
    if dist.get_rank() == 0 and step != 3:
        dist.send(mine, other)
        dist.recv(theirs, other)
    else:
        dist.recv(theirs, other)
        torch.cuda.synchronize()
        dist.send(mine, other)
    torch.cuda.synchronize()
