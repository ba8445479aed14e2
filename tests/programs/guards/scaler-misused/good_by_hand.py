"""The loss is scaled by hand, or unscaled by hand; and bfloat16 needs none.

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
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
data = TensorDataset(torch.randn(24, 4) + dist.get_rank(), torch.randn(24, 1))
for x, y in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    (loss_of(model, x, y, torch.float16) * 1024).backward()
    for parameter in model.parameters():
        parameter.grad /= 1024
    optimizer.step()
    optimizer.zero_grad()
    scaler.scale(loss_of(model, x, y, torch.float16)).backward()
    for parameter in model.parameters():
        parameter.grad /= 128
    optimizer.step()
    optimizer.zero_grad()
    loss_of(model, x, y, torch.bfloat16).backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
