"""On rank 1 a call of the driver never returns and keeps its lock: its host stands in a copy to its device.

Fault: driver-blocked at=200 rank=1
Options: --on-hang kill
Verdict: stuck-in-native|collective-not-joined; ranks: 1; side: host

The second id where the recorder of rank 1 does not answer, as torch's thread may hold its lock: then its stack does not
say what it waits in, and NCCL's counts name it.
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
for step in range(2000):
    x = torch.ones(16).cuda()
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    time.sleep(0.01)
