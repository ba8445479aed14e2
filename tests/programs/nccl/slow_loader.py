"""The data set of rank 1 is slow; its host comes last to each collective, its device is as fast as the others.

Ranks: 2
Options: --preset hang
Slow: straggler|data-starved; ranks: 1; side: host
"""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")


def sample(step):
    if dist.get_rank() == 1:
        time.sleep(0.06)
    return torch.full((1 << 16,), float(step))


for step in range(120):
    loss = sample(step).cuda()
    dist.all_reduce(loss)
    loss[0].item()
    if dist.get_rank() == 0 and step == 60:
        asks = subprocess.Popen([sys.executable, "-m", "distdbg", "hang-dump", os.environ["DISTDBG_RUN_DIR"]])
if dist.get_rank() == 0:
    asks.wait()
dist.destroy_process_group()
