"""Rank 1 calls a C library that blocks and has let the GIL go, as ctypes.CDLL does.

Verdict: stuck-in-native; ranks: 1; says: native_without_gil.py:17
On two ranks.
"""

import ctypes

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

libc = ctypes.CDLL("libc.so.6")


def decode(batch):
    libc.pause()
    return batch


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    batch = torch.ones(4, 8)
    if step == 5 and dist.get_rank() == 1:
        batch = decode(batch)
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
