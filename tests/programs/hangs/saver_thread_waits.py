"""Rank 0 joins the thread that publishes its checkpoint, which waits for rank 3 in a group of theirs; rank 3 sleeps.

Ranks 1 and 2 wait for both, and rank 0 seems to wait for nothing but a thread of its own.

Verdict: stuck-in-python; ranks: 3; says: saver_thread_waits.py:22
"""

import threading
import time

import torch
import torch.distributed as dist


def publish():
    dist.broadcast(torch.ones(4), src=0, group=pair)
    dist.barrier(group=pair)


def pick_up():
    while dist.is_initialized():
        time.sleep(1)


dist.init_process_group("gloo")
rank, pair = dist.get_rank(), dist.new_group([0, 3])
for step in range(100):
    dist.all_reduce(torch.ones(16))
    if step == 5 and rank == 0:
        saver = threading.Thread(target=publish)
        saver.start()
        saver.join()
    if step == 5 and rank == 3:
        pick_up()
