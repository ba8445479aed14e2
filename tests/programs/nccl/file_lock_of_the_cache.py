"""Rank 2 waits for a lock on a file that another process keeps; the others are in synchronize().

Hang: stuck-on-io; ranks: 2; says: file_lock_of_the_cache.py:30; side: host
"""

import fcntl
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
cache = open("cache.lock", "w")
if dist.get_rank() == 2:
    other = os.fork()
    if other == 0:
        kept = open("cache.lock", "w")
        fcntl.flock(kept, fcntl.LOCK_EX)
        open("locked", "w").close()
        time.sleep(45)
        os._exit(0)
    while not os.path.exists("locked"):
        time.sleep(0.05)
for step in range(100):
    if dist.get_rank() == 2 and step == 3:
        fcntl.flock(cache, fcntl.LOCK_EX)
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
