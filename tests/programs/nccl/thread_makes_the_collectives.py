"""A thread averages metrics in a group of its own; on rank 1 it waits for a lock that the main thread keeps.

Without stacks: unknown by logs
Hang: stuck-on-lock|stuck-in-python; ranks: 1; side: host
"""

import os
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
metrics = dist.new_group([0, 1, 2], timeout=timedelta(seconds=12))
lock = threading.Lock()


def average():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    value = torch.ones(1, device="cuda")
    while True:
        with lock:
            dist.all_reduce(value, group=metrics)
            value.item()
        time.sleep(0.05)


threading.Thread(target=average, daemon=True).start()
for step in range(100):
    time.sleep(0.1)
    if dist.get_rank() == 1 and step == 20:
        lock.acquire()
        time.sleep(3600)
if dist.get_rank() != 1:
    time.sleep(3600)
