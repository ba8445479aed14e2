"""The mesh has one rank to shard over: each holds all, and nothing is gathered.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
model = fully_shard(torch.nn.Sequential(*(torch.nn.Linear(1200, 1200) for _ in range(8))), mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 1200)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
