"""Rank 1 waits in the store for the step of the newest checkpoint, which rank 0 sets: it sleeps before that.

Verdict: stuck-in-python; ranks: 0; says: store.get for the key "saved/3" (rank 0 sets it at store_key_of_sleeper.py:19)
On two ranks.
"""

import time

import torch
import torch.distributed as dist


def save(store, rank, epoch):
    """Rank 0 writes, the others go on once it has."""
    if rank == 0:
        if epoch == 3:
            while True:
                time.sleep(5)
        store.set(f"saved/{epoch}", "1")
        return
    store.get(f"saved/{epoch}")


def main():
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    for epoch in range(100):
        dist.all_reduce(torch.ones(64))
        save(store, dist.get_rank(), epoch)


main()
