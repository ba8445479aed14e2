"""Rank 0's main thread died of an exception; a thread that is no daemon keeps the process, and so the job, alive.

Verdict: rank-exception; ranks: 0; says: bad label 11
On two ranks.
"""

import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def watch_disk():
    while True:
        time.sleep(1)


dist.init_process_group("gloo")
threading.Thread(target=watch_disk).start()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(100):
    label = 11 if step == 4 and dist.get_rank() == 0 else 3
    if label >= 10:
        raise ValueError(f"bad label {label}")
    model(torch.ones(4, 8)).sum().backward()
