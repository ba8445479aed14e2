"""The same driver call that never returns, where nobody looks meanwhile: torch's heartbeat monitor ends rank 1.

Fault: driver-blocked at=200 rank=1
Options: --hang-timeout 600
Verdict: watchdog-stuck; ranks: 1; says: got stuck

What keeps the watchdog is not in its lines. A rank that only waits, with a full queue, can look the same.
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] = "10"
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=600))
numbers = torch.ones(16, device="cuda")
for step in range(2000):
    x = torch.ones(16).cuda()
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    time.sleep(0.01)
