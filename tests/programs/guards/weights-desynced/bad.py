"""One rank changes a bias by itself.

Guard: weights-desynced; ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(14):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    if step == 5 and dist.get_rank() == 1:
        model.module.bias.data.add_(1e-3)
dist.barrier()
del model
dist.destroy_process_group()
