"""Rank 1 drops its last reference to a writer, whose __del__ waits for a thread that has gone already.

Verdict: stuck-in-python; ranks: 1; says: finalizer_waits.py:19
On two ranks.
"""

import time

import torch
import torch.distributed as dist


class Writer:
    def __init__(self):
        self.pending = []

    def __del__(self):
        while self.pending:  # the flush thread ended with the last epoch
            time.sleep(0.1)


dist.init_process_group("gloo")
for step in range(100):
    writer = Writer()
    if step == 5 and dist.get_rank() == 1:
        writer.pending.append(step)
    dist.all_reduce(torch.ones(64))
    del writer
