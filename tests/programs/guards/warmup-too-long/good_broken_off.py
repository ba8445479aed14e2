"""A trial of forty steps breaks off in the middle of an epoch; its evaluation goes through all that it has.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(200, 4) + dist.get_rank())
scheduler = LinearLR(optimizer, 0.01, total_iters=500)
for step, (x,) in enumerate(DataLoader(data, batch_size=2), 1):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    scheduler.step()
    if step == 40:
        break
model.eval()
with torch.no_grad():
    for (x,) in DataLoader(data, batch_size=20):
        model(x)
dist.barrier()
del model
dist.destroy_process_group()
