"""A schedule for three epochs moves with each step.

Guard: scheduler-cadence; line: scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(40, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
for _ in range(3):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()
dist.barrier()
del model
dist.destroy_process_group()
