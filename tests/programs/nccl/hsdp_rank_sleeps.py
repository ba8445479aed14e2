"""Hybrid sharding: two replicas of two shards; rank 3 sleeps in its second step. Rank 2 waits for its shard, the others
for the reduction between replicas or in the step after.

Ranks: 4
Without stacks: unknown by logs
Hang: stuck-in-python; ranks: 3; says: hsdp_rank_sleeps.py:30; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.distributed_c10d.default_pg_nccl_timeout = timedelta(seconds=12)
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = model(torch.ones(4, 8, device="cuda")).sum()
    if dist.get_rank() == 3 and step == 3:
        time.sleep(3600)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
