"""float16 with a scaler that is used as it should be; bfloat16 with one that is switched off.

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
scaler = torch.amp.GradScaler("cpu")
no_scaler = torch.amp.GradScaler("cpu", enabled=False)
data = TensorDataset(torch.randn(24, 4) + dist.get_rank(), torch.randn(24, 1))
for x, y in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    scaler.scale(loss_of(model, x, y, torch.float16)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    no_scaler.scale(loss_of(model, x, y, torch.bfloat16)).backward()
    no_scaler.step(optimizer)
    no_scaler.update()
dist.barrier()
del model
dist.destroy_process_group()
