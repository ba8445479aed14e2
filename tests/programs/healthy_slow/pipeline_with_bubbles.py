"""A pipeline of four slow stages: most ranks wait in recv most of the time, and no collective is ever made.

Fools "blocked in recv in two looks": each time it is another micro-batch.
Quiet for: 6 s
Verdict: none; exit: 0
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
stage = torch.nn.Linear(64, 64)
for _step in range(3):
    for _micro in range(2):
        hidden = torch.ones(8, 64)
        if rank > 0:
            dist.recv(hidden, rank - 1)
        time.sleep(1.5)
        hidden = stage(hidden).detach()
        if rank < 3:
            dist.send(hidden, rank + 1)
    gradient = torch.ones(8, 64)  # and back again
    if rank < 3:
        dist.recv(gradient, rank + 1)
    time.sleep(1)
    if rank > 0:
        dist.send(gradient, rank - 1)
dist.barrier()
dist.destroy_process_group()
