"""Rank 0 writes a checkpoint for 25 s, a few megabytes at a time, while the others wait in a barrier.

Fools a rule that blames whoever is missing in the oldest collective: the bytes of rank 0 are moving.
Quiet for: 25 s
Verdict: none; exit: 0
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model, seconds):
    shard = os.urandom(4 << 20)  # a shard of a large model, on a slow file system
    with tempfile.TemporaryFile() as checkpoint:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            checkpoint.seek(0)
            checkpoint.write(shard)
            checkpoint.flush()
            os.fsync(checkpoint.fileno())
            time.sleep(0.2)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(1, 61):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.1)
    if step == 30:
        if dist.get_rank() == 0:
            save(model, 25)
        dist.barrier()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
