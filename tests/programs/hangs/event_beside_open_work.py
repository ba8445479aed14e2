"""Rank 1 waits for its prefetcher while a reduction is under way in the background: `wait()` is not that of the work.

Verdict: stuck-on-lock; ranks: 1; says: event_beside_open_work.py:26
On two ranks.
"""

import threading

import torch
import torch.distributed as dist


def prefetch():
    for _ in range(5):
        ready.set()


dist.init_process_group("gloo")
ready = threading.Event()
threading.Thread(target=prefetch, daemon=True).start()
for step in range(100):
    work = dist.all_reduce(torch.ones(16), async_op=True)
    other = dist.all_reduce(torch.ones(4), async_op=True)
    if step == 5 and dist.get_rank() == 1:
        ready.clear()
        ready.wait()
    other.wait()
    work.wait()
    dist.barrier()
