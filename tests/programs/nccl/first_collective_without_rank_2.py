"""Rank 2 sleeps before its first collective: the hosts of the others wait for the communicator inside all_reduce.

Verdict: stuck-in-python; ranks: 2; says: first_collective_without_rank_2.py:16
"""

import os
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
numbers = torch.ones(16, device="cuda")
if dist.get_rank() == 2:
    time.sleep(3600)
dist.all_reduce(numbers)
torch.cuda.synchronize()
