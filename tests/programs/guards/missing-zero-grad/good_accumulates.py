"""Micro-batches are accumulated, and cleared after the step, each time in another way.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    with model.no_sync():
        model(torch.randn(2, 4)).square().sum().backward()
    model(torch.randn(2, 4)).square().sum().backward()
    optimizer.step()
    for parameter in model.parameters():
        if step % 3 == 0:
            parameter.grad = None
        elif step % 3 == 1:
            parameter.grad.zero_()
        else:
            parameter.grad.data.zero_()
dist.barrier()
del model
dist.destroy_process_group()
