"""A thread of rank 0 is blocked in a C function that keeps the GIL: the main thread cannot go on, nor can it speak.

Verdict: stuck-in-native; ranks: 0; says: thread_keeps_the_gil.py:18
On two ranks.
"""

import ctypes
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

libc = ctypes.PyDLL(None)


def write_metrics():
    libc.sleep(1000)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    if step == 4 and dist.get_rank() == 0:
        threading.Thread(target=write_metrics, daemon=True).start()
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
