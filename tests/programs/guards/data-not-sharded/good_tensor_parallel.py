"""Ranks that share one model read the same data: nothing averages their gradients.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_size=2)

for (x,) in loader:
    optimizer.zero_grad()
    part = model(x[:, :4])
    dist.all_reduce(part.detach())
    part.square().sum().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
