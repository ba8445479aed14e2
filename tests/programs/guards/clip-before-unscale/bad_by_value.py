"""Each number of the gradient is clipped, before the scaler takes its factor out.

Guard: clip-before-unscale; line: torch.nn.utils.clip_grad_value_(model.parameters(), 0.5); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def limit(model):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)


def advance(model, optimizer, scaler):
    limit(model)
    scaler.step(optimizer)
    scaler.update()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
data = TensorDataset(torch.randn(24, 4) + dist.get_rank())
for (x,) in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    scaler.scale(model(x).square().mean()).backward()
    advance(model, optimizer, scaler)
dist.barrier()
del model
dist.destroy_process_group()
