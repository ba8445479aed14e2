"""First collectives of a 2 x 2 mesh in crossed orders: each host waits while NCCL connects its group.

Ranks: 4
Options: --on-hang kill
Verdict: group-deadlock; ranks: 0-3; says: mesh_groups_crossed_at_first_use.py:22
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
numbers = torch.ones(16, device="cuda")
first, second = mesh["tp"].get_group(), mesh["dp"].get_group()
if dist.get_rank() in (1, 2):
    first, second = second, first
for group in (first, second):
    dist.all_reduce(numbers, group=group)
    torch.cuda.synchronize()
