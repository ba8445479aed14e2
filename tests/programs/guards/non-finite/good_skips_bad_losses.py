"""Some losses are NaN, and the script leaves those steps out.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(24):
    rows = torch.randn(8, 4)
    if step % 2:
        rows[0, 0] = float("nan")
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if torch.isfinite(loss):
        optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
