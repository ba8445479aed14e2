"""Ranks 0 and 2 wait on a condition whose notify comes before the wait, and only once.

Verdict: stuck-on-lock; ranks: 0,2; says: condition_without_notify.py:27
"""

import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

ready = threading.Condition()


def stage(step):
    with ready:
        ready.notify()


def staged(step):
    worker = threading.Thread(target=stage, args=(step,))
    worker.start()
    if step == 3 and dist.get_rank() in (0, 2):
        time.sleep(0.2)  # the thread is faster this time
        with ready:
            ready.wait()
    worker.join()


dist.init_process_group("gloo")
model = fully_shard(torch.nn.Linear(8, 8))
for step in range(100):
    staged(step)
    model(torch.ones(4, 8)).sum().backward()
