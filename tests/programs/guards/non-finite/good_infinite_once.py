"""One of two losses is infinite now and then, and the script leaves those steps out.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(70):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    if step in (1, 2, 5, 40):
        loss = loss / 0.0
    loss.backward()
    if torch.isfinite(loss):
        optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
