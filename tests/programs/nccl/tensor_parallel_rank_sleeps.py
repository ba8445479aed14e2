"""A mesh of two tensor-parallel groups: rank 3 sleeps, rank 2 waits for it in its group, ranks 0 and 1 in theirs.

Ranks: 4
Without stacks: unknown by logs
Hang: stuck-in-python; ranks: 3; says: tensor_parallel_rank_sleeps.py:25; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.distributed_c10d.default_pg_nccl_timeout = timedelta(seconds=12)
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
tp, dp = mesh["tp"].get_group(), mesh["dp"].get_group()
numbers = torch.ones(16, device="cuda")
for step in range(100):
    dist.all_reduce(numbers, group=dp)
    if dist.get_rank() == 3 and step == 3:
        time.sleep(3600)
    dist.all_reduce(numbers, group=tp)
    dist.all_reduce(numbers, group=dp)
    torch.cuda.synchronize()
