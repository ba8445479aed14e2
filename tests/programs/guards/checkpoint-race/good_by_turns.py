"""Rank 0 saves; later, at another step, the other rank overwrites it on purpose.

Guard: none
Modes: checkpoint-not-atomic=off
"""

import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    if step % dist.get_world_size() == dist.get_rank():
        torch.save(model.module.state_dict(), f"{folder[0]}/latest.pt")
    dist.barrier()
dist.barrier()
del model
dist.destroy_process_group()
