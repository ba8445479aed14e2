"""Rank 1 leaves early, and a function registered with atexit waits for an upload, so the process stays.

Verdict: stuck-in-python; ranks: 1; says: at_exit.py:19
On two ranks.
"""

import atexit
import sys
import time

import torch
import torch.distributed as dist

uploaded = []


def wait_for_upload():
    while not uploaded:
        time.sleep(0.5)


dist.init_process_group("gloo")
atexit.register(wait_for_upload)
for step in range(100):
    dist.all_reduce(torch.ones(64))
    if step == 4 and dist.get_rank() == 1:
        print("nothing left to do here", flush=True)
        sys.exit(0)
