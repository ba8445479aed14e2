"""On rank 1 a timer's signal arrives while the main thread holds the lock that the handler wants.

Verdict: stuck-on-lock; ranks: 1; says: signal_handler.py:19
On two ranks.
"""

import signal
import threading
import time

import torch
import torch.distributed as dist

statistics_lock = threading.Lock()
counts = {"steps": 0}


def report(_number, _frame):
    with statistics_lock:
        print(counts, flush=True)


def count(step):
    with statistics_lock:
        counts["steps"] += 1
        if step == 4:
            time.sleep(1)  # a long update


dist.init_process_group("gloo")
if dist.get_rank() == 1:
    signal.signal(signal.SIGALRM, report)
for step in range(100):
    dist.all_reduce(torch.ones(64))
    if step == 4 and dist.get_rank() == 1:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    count(step)
