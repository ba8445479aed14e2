"""A pipeline of four stages, point to point. Stage 2 waits for memory in its own code, the rest for stage 2.

Verdict: stuck-in-python; ranks: 2; says: pipeline_stage_sleeps.py:14
"""

import time

import torch
import torch.distributed as dist


def wait_for_memory(micro):
    while dist.get_rank() == 2 and micro == 4:
        time.sleep(0.3)


dist.init_process_group("gloo")
rank = dist.get_rank()
stage = torch.nn.Linear(64, 64)
for micro in range(100):
    hidden = torch.ones(8, 64)
    if rank > 0:
        dist.recv(hidden, rank - 1)
    wait_for_memory(micro)
    hidden = stage(hidden).detach()
    if rank < 3:
        dist.send(hidden, rank + 1)
