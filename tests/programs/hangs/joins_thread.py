"""Rank 0 joins its metrics thread before it saves; the thread waits for a message that the main thread should send.

Verdict: stuck-on-lock; ranks: 0; says: joins_thread.py:23
On two ranks.
"""

import threading

import torch
import torch.distributed as dist

finished = threading.Event()


def upload():
    finished.wait()


def save(step):
    if dist.get_rank() == 0:
        uploader = threading.Thread(target=upload, daemon=True)
        uploader.start()
        uploader.join()
        finished.set()


dist.init_process_group("gloo")
for step in range(1, 100):
    dist.all_reduce(torch.ones(64))
    if step % 4 == 0:
        save(step)
        dist.barrier()
