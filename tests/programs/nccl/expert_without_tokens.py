"""Experts exchange tokens; rank 1 has none in the fourth step and leaves the exchange out, while the others are in it.

Fault: nccl-mismatch
Hang: rank-conditional-collective|collective-mismatch; ranks: 1; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.distributed_c10d.default_pg_nccl_timeout = timedelta(seconds=12)
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (3,), mesh_dim_names=("ep",))
ep = mesh["ep"].get_group()
for step in range(100):
    tokens = torch.ones(0 if step == 3 and dist.get_rank() == 1 else 6, device="cuda")
    if tokens.numel():
        dist.all_to_all_single(torch.empty_like(tokens), tokens, group=ep)
    load = torch.ones(1, device="cuda")
    dist.all_reduce(load, group=ep)
    torch.cuda.synchronize()
