"""The device of rank 1 takes longer for each kernel; every host enqueues in time, and reads its loss in each step.
The start times that `--preset hang` has recorded tell whose device comes last.

Ranks: 2
Options: --preset hang
Fault: slow-device us=60000 rank=1
Slow: straggler; ranks: 1; side: device
"""

import os
import subprocess
import sys

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
for step in range(120):
    loss = torch.full((1 << 16,), 1.0, device="cuda")
    dist.all_reduce(loss)
    loss[0].item()
    if dist.get_rank() == 0 and step == 60:
        asks = subprocess.Popen([sys.executable, "-m", "distdbg", "hang-dump", os.environ["DISTDBG_RUN_DIR"]])
if dist.get_rank() == 0:
    asks.wait()
dist.destroy_process_group()
