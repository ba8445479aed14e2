"""Each rank builds its cache under a file lock. Rank 0 broadcasts with the lock held, for which rank 1 waits first.

Verdict: group-deadlock; ranks: 0-1; says: broadcasts_in_file_lock.py:19
On two ranks.
"""

import fcntl
import os
import time

import torch
import torch.distributed as dist


def build_cache(vocabulary):
    while dist.get_rank() == 1 and not os.path.exists("locked"):
        time.sleep(0.05)
    with open("cache.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        open("locked", "w").close()
        dist.broadcast(vocabulary, src=0)


dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(16))
build_cache(torch.arange(8))
