"""Ten steps are a trial, and say nothing about a warm-up.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(20, 4) + dist.get_rank())
scheduler = OneCycleLR(optimizer, 0.1, total_steps=1000)
for (x,) in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    scheduler.step()
dist.barrier()
del model
dist.destroy_process_group()
