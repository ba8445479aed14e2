"""The loader's worker of rank 1 collates with threads of its own, one of which waits for an object store.

Verdict: stuck-in-dataloader; ranks: 1; says: collate_with_threads.py:17
On two ranks.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


def fetch(index):
    while index == 21 and rank == 1:
        time.sleep(1)
    return torch.ones(4)


def collate(indices):
    with ThreadPoolExecutor(2) as pool:
        return torch.stack(list(pool.map(fetch, indices)))


dist.init_process_group("gloo")
rank = dist.get_rank()
for batch in DataLoader(range(400), batch_size=2, num_workers=1, collate_fn=collate, multiprocessing_context="fork"):
    dist.all_reduce(batch)
