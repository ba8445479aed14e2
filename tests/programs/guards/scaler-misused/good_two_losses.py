"""A second loss is not scaled, and its optimizer steps by itself.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def loss_of(model, x, y, dtype):
    with torch.autocast("cpu", dtype=dtype):
        return torch.nn.functional.mse_loss(model(x), y)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
critic = DistributedDataParallel(torch.nn.Linear(4, 1))
others = torch.optim.SGD(critic.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
data = TensorDataset(torch.randn(24, 4) + dist.get_rank(), torch.randn(24, 1))
for x, y in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    others.zero_grad()
    scaler.scale(loss_of(model, x, y, torch.float16)).backward()
    torch.nn.functional.mse_loss(critic(x), y).backward()
    others.step()
    scaler.step(optimizer)
    scaler.update()
dist.barrier()
del model, critic
dist.destroy_process_group()
