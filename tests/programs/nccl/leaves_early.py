"""Rank 1 has a batch less and leaves with exit code 0; the others wait for its gradients.

Hang: collective-not-joined|rank-exited-early; ranks: 1

While the others wait, nobody has failed of it: collective-not-joined, which says that rank 1 has ended with code 0.
Once torch's timeout has ended them it is rank-exited-early, which the exit codes and times of all ranks prove.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(8 if dist.get_rank() == 1 else 100):
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
os._exit(0)
