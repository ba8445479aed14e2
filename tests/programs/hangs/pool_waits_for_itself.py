"""Rank 1 submits work from inside the only thread of its pool and waits for the result there.

Verdict: stuck-on-lock; ranks: 1; says: pool_waits_for_itself.py
On two ranks.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

pool = ThreadPoolExecutor(max_workers=1)


def read(index):
    return float(index)


def read_pair(index):
    return read(index) + pool.submit(read, index + 1).result()


dist.init_process_group("gloo")
for step in range(100):
    wanted = read_pair if step == 4 and dist.get_rank() == 1 else read
    value = pool.submit(wanted, step).result()
    dist.all_reduce(torch.tensor([value]))
