"""On rank 1 a call of the driver never returns: torch's watchdog waits for its lock, and the heartbeat monitor ends it.

Fault: driver-blocked at=200 rank=1
Options: --on-hang report
Verdict: stuck-in-native|collective-not-joined|watchdog-stuck; ranks: 1
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] = "15"
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=60))
numbers = torch.ones(16, device="cuda")
for step in range(2000):
    x = torch.ones(16).cuda()
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    time.sleep(0.01)
