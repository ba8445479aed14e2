"""Rank 1 is killed, and NCCL of the others notices: their remote errors are consequences.

Fault: peer-death-noticed
Verdict: rank-killed; ranks: 1; code: 137 of rank 1
"""

import os
import signal
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(100):
    if dist.get_rank() == 1 and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
