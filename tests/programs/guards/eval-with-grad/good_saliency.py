"""Saliency maps in evaluation mode, and training with frozen batch norm.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))

model.eval()
for (x,) in loader:
    torch.autograd.grad(model(x.requires_grad_()).sum(), x)
for (x,) in loader:
    optimizer.zero_grad()
    (model(x) + model(2 * x)).sum().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
