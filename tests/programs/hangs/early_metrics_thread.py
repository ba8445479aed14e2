"""Rank 1's main thread waits for a batch that its producer never makes, and rank 0 waits for that.

Its metrics thread waits, too, in a group of its own for those of the others, which come a step later: it is early, and
no cause.

Verdict: stuck-on-lock; ranks: 1; says: early_metrics_thread.py:29
On two ranks.
"""

import queue
import threading
import time

import torch
import torch.distributed as dist


def report():
    dist.barrier(group=metrics)


dist.init_process_group("gloo")
metrics, batches = dist.new_group(range(2)), queue.Queue()
for step in range(100):
    dist.all_reduce(torch.ones(16))
    if step == 5 and dist.get_rank() == 1:
        threading.Thread(target=report, daemon=True).start()
        time.sleep(0.5)
        batches.get()
    if step == 6:
        threading.Thread(target=report, daemon=True).start()
