"""Rank 1 forks its loader workers while another thread holds a lock, so the workers' copy is never released.

Verdict: stuck-in-dataloader; ranks: 1; says: worker_inherits_lock.py:22
On two ranks.
"""

import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

cache_lock = threading.Lock()


class Cached(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        with cache_lock:
            return torch.ones(8)


def fill_cache():
    with cache_lock:
        time.sleep(2)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for _ in range(4):
        dist.all_reduce(torch.ones(64))
    if dist.get_rank() == 1:
        threading.Thread(target=fill_cache, daemon=True).start()
        time.sleep(0.1)
    for batch in DataLoader(Cached(), batch_size=4, num_workers=1, multiprocessing_context="fork"):
        dist.all_reduce(batch)
