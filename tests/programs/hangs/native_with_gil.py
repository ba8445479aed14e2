"""Rank 0 calls a C library that blocks and keeps the GIL, so no Python thread of that rank can speak.

Verdict: stuck-in-native; ranks: 0; says: native_with_gil.py:17
On two ranks.
"""

import ctypes

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

libc = ctypes.PyDLL("libc.so.6")


def tokenize(batch):
    libc.pause()
    return batch


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    batch = torch.ones(4, 8)
    if step == 4 and dist.get_rank() == 0:
        batch = tokenize(batch)
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
