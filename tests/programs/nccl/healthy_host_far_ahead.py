"""Healthy: each kernel takes long, and the hosts are many steps ahead of their devices. Then all hosts wait in one
synchronize() for longer than a hang takes: only the completed collectives move.

Fault: slow-device us=10000
Ranks: 2
Verdict: none
"""

import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
numbers = torch.ones(1 << 16, device="cuda")
for step in range(3000):
    numbers.fill_(1.0)
    dist.all_reduce(numbers)
torch.cuda.synchronize()
dist.destroy_process_group()
