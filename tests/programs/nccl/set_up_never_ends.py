"""On rank 1 the set-up of the communicator never ends within NCCL: all hosts are in their first collective, and nobody
is missing.

Fault: comm-hang at=1 rank=1
Options: --on-hang kill
Verdict: unknown
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
dist.all_reduce(numbers)
torch.cuda.synchronize()
