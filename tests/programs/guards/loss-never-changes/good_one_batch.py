"""One batch again and again, and a rate so low that the loss hardly falls.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
rows = torch.ones(8, 4)
for _ in range(12):
    optimizer.zero_grad()
    (model(rows) - 3).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
