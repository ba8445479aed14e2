"""Every loss is NaN, and the scaler leaves out every step: the weights stay as they were.

Guard: non-finite; line: scaler.scale(loss).backward(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
for _ in range(12):
    optimizer.zero_grad()
    rows = torch.randn(8, 4)
    loss = (model(rows) - torch.log(-rows.abs().sum(1))).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
