"""On rank 3 a hook of a gradient writes to a slow place.

Verdict: straggler; ranks: 3; says: in its backward
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def keep(gradient):
    if dist.get_rank() == 3:
        time.sleep(0.05)  # the fault
    return gradient


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for _ in range(10):
    outputs = model(torch.randn(4, 8))
    outputs.register_hook(keep)
    outputs.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
