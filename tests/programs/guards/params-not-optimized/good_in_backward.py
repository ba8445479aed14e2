"""Each parameter has an optimizer of its own, which steps within the backward.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
own = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()}
for _ in range(12):
    model(torch.randn(2, 4)).sum().backward()
    for optimizer in own.values():
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
del model
dist.destroy_process_group()
