"""One rank has a micro-batch more than the other, which is left over on it: both make as many steps.

Guard: none
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(9, 4)[dist.get_rank() :: dist.get_world_size()] + dist.get_rank())
loader = DataLoader(data, batch_size=1)
for number, (x,) in enumerate(loader, 1):
    steps = number % 2 == 0
    with contextlib.nullcontext() if steps else model.no_sync():
        (model(x).square().mean() / 2).backward()
    if steps:
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
del model
dist.destroy_process_group()
