"""On rank 1 the main thread and the checkpoint thread take the same two locks in opposite orders.

Verdict: stuck-on-lock; ranks: 1; says: two_locks.py:26
On two ranks.
"""

import threading
import time

import torch
import torch.distributed as dist

weights_lock, file_lock = threading.Lock(), threading.Lock()


def write_checkpoint():
    with file_lock:
        time.sleep(0.2)
        with weights_lock:
            pass


def update(step):
    with weights_lock:
        time.sleep(0.1)
        with file_lock:
            return step


dist.init_process_group("gloo")
for step in range(100):
    dist.all_reduce(torch.ones(64))
    if step == 4 and dist.get_rank() == 1:
        threading.Thread(target=write_checkpoint, daemon=True).start()
        time.sleep(0.05)
    update(step)
