"""A scaler skips the first steps, the schedule moves all the same; before that it is wound forward, as after a restart.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
data = TensorDataset(100 * torch.randn(40, 4) + dist.get_rank())
for _ in range(3):
    scheduler.step()
for (x,) in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
assert scaler.get_scale() < 2.0**127, "no step was skipped"
dist.barrier()
del model
dist.destroy_process_group()
