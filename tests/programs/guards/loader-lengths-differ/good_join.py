"""Ranks with fewer batches shadow the others: join() is made for it.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(9, 4)[dist.get_rank() :: dist.get_world_size()] + dist.get_rank())
loader = DataLoader(data, batch_size=1)
for _ in range(2):
    with model.join():
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
