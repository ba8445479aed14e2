"""Training with frozen batch norm, where one backward is for the summed losses of a whole pass.

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
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=2, sampler=sampler)

model.eval()
for epoch in range(3):
    sampler.set_epoch(epoch)
    optimizer.zero_grad()
    total = sum(model(x).square().sum() for (x,) in loader)
    total.backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
