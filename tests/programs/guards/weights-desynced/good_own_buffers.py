"""Batch norm has statistics of its own on each rank.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = DistributedDataParallel(net, broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(14):
    optimizer.zero_grad()
    model(torch.randn(4, 4) + dist.get_rank()).sum().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
