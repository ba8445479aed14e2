"""A head is added after the optimizer was made.

Guard: params-not-optimized; line: optimizer.step(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(body.parameters(), lr=0.01)
model = DistributedDataParallel(torch.nn.Sequential(body, head))

for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
