"""The data are dealt out to the ranks, and all items are alike, as where only the speed is measured.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(4.0).expand(16, 4))
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
for (x,) in loader:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
