"""The factor of the scaler is too large at first: the scaled losses are infinite until it has been halved often enough.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**32)
for _ in range(60):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean().half() * 500
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() < 2.0**16
dist.barrier()
del model, optimizer
dist.destroy_process_group()
