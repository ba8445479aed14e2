"""A schedule for a hundred epochs moves once an epoch, and the training is stopped after six.

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
data = TensorDataset(torch.randn(80, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
scheduler = OneCycleLR(optimizer, 0.1, total_steps=100)
for epoch in range(100):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    scheduler.step()
    if epoch == 5:
        break
dist.barrier()
del model
dist.destroy_process_group()
