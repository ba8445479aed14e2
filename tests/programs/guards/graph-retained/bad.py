"""Losses are added up with all that made them.

Guard: graph-retained; line: loss.backward(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = 0.0
for _ in range(60):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    total = total + loss
print(float(total))
dist.barrier()
del model
dist.destroy_process_group()
