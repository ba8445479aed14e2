"""Losses are kept as numbers; the last graph is kept a step long.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses, last = [], None
for _ in range(60):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    losses += [loss.detach(), loss.item()]
    last = loss
print(float(last))
dist.barrier()
del model
dist.destroy_process_group()
