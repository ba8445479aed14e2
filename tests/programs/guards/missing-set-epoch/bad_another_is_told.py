"""The epoch is told to the sampler of another loader.

Guard: missing-set-epoch; line: for (x,) in loader:; ranks: 0-1
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
other = DistributedSampler(data)
for epoch in range(3):
    other.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
