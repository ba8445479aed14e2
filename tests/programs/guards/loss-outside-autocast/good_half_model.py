"""A model of half precision has a loss of half precision, autocast or not.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def loss_of(model, x, y, dtype):
    with torch.autocast("cpu", dtype=dtype):
        return torch.nn.functional.mse_loss(model(x.bfloat16()), y.bfloat16())


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1).bfloat16())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

data = TensorDataset(torch.randn(24, 4) + dist.get_rank(), torch.randn(24, 1))
for x, y in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    loss_of(model, x, y, torch.bfloat16).backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
