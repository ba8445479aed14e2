"""Tensor and data parallel groups of two. Rank 0 waits for 1 over tp, 1 for 3 over dp, 2 for 3 over tp; 3 sleeps.

Verdict: stuck-in-python; ranks: 3; says: mesh_one_sleeps.py:15
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def spill(step):
    while True:
        time.sleep(1)


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
tp, dp = mesh.get_group("tp"), mesh.get_group("dp")
for step in range(100):
    activations, gradient = torch.ones(4, 8), torch.ones(64)
    dist.all_reduce(activations, group=tp)
    if step == 4 and dist.get_rank() == 3:
        spill(step)
    dist.all_reduce(gradient, group=dp)
    dist.all_reduce(activations, group=tp)
