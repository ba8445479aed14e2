"""Rank 1 waits in the store for a key that nobody sets: rank 0 writes it with another name.

Verdict: stuck-on-io; ranks: 1; says: only f'done/{rank}/{step}' (waits_for_store_key.py:17)
On two ranks.
"""

from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
store = dist.distributed_c10d._get_default_store()
for step in range(100):
    dist.all_reduce(torch.ones(64))
    store.set(f"done/{rank}/{step}", "1")
    if step == 4 and rank == 1:
        store.wait([f"finished/0/{step}"], timedelta(days=7))
