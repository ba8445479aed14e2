"""Rank 0 downloads under a file lock from a server that does not answer; rank 1 waits for the lock, the rest for both.

Verdict: stuck-in-python; ranks: 0; says: sleeps_in_file_lock.py:20
"""

import fcntl
import os
import time

import torch
import torch.distributed as dist


def prepare():
    while dist.get_rank() == 1 and not os.path.exists("locked"):
        time.sleep(0.05)
    with open("data.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        open("locked", "w").close()
        time.sleep(3600)  # the download


dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(16))
if dist.get_rank() < 2:
    prepare()
dist.barrier()
