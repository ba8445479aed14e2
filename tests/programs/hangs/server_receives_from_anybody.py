"""Rank 0 serves parameters to whoever sends a gradient. Rank 2 stopped to think; 1 and 3 wait for rank 0, it for any.

Verdict: stuck-in-python; ranks: 2; says: server_receives_from_anybody.py:14
"""

import time

import torch
import torch.distributed as dist


def augment(step):
    while step == 5 and dist.get_rank() == 2:
        time.sleep(1)


dist.init_process_group("gloo")
parameters = torch.ones(16)
for step in range(100):
    if dist.get_rank() == 0:
        for _ in range(3):
            dist.recv(parameters)
        for worker in (1, 2, 3):
            dist.send(parameters, worker)
    else:
        augment(step)
        dist.send(parameters, 0)
        dist.recv(parameters, 0)
