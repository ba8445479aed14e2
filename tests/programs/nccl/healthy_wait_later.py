"""Healthy: handles of asynchronous collectives are waited for much later, and rank 1 is slower for a while.

Ranks: 2
Verdict: none
"""

import os
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
handles = []
for step in range(60):
    handles.append(dist.all_reduce(torch.ones(16, device="cuda"), async_op=True))
    time.sleep(0.15 if dist.get_rank() == 1 and 20 < step < 40 else 0.02)
for handle in handles:
    handle.wait()
torch.cuda.synchronize()
dist.destroy_process_group()
