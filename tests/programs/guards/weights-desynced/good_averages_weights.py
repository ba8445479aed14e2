"""Local SGD: the ranks step by themselves, and average their weights now and then.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(14):
    optimizer.zero_grad()
    with model.no_sync():
        model(torch.randn(2, 4) + dist.get_rank()).square().mean().backward()
    optimizer.step()
    if step % 4 == 3:
        for parameter in model.parameters():
            dist.all_reduce(parameter.data, op=dist.ReduceOp.SUM)
            parameter.data /= dist.get_world_size()
dist.barrier()
