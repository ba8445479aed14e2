"""Rank 1's prefetch thread died of a bad record; the main thread waits for its next batch for ever.

Verdict: stuck-on-lock; ranks: 1; says: prefetch_queue.py:29
On two ranks.
"""

import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

batches = queue.Queue(maxsize=4)


def prefetch():
    for index in range(1000):
        if index == 5 and dist.get_rank() == 1:
            raise ValueError(f"record {index} is damaged")
        batches.put(torch.full((4, 8), float(index % 3)))


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
threading.Thread(target=prefetch, daemon=True).start()
for _ in range(500):
    batch = batches.get()
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
