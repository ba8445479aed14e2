"""Outputs are taken to float32 before the loss; what is no loss function may be of half precision.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def outputs_of(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

data = TensorDataset(torch.randn(24, 4) + dist.get_rank(), torch.randn(24, 1))
for x, y in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(outputs_of(model, x).float(), y).backward()
    outputs_of(model, x).mean().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
