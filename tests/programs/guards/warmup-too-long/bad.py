"""A warm-up whose length was counted for another data set is not over when the training is.

Guard: warmup-too-long; line: return LinearLR(optimizer, start_factor=0.01, total_iters=500); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, TensorDataset


def schedule_of(optimizer):
    return LinearLR(optimizer, start_factor=0.01, total_iters=500)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(40, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
scheduler = schedule_of(optimizer)
for _ in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()
    with torch.no_grad():
        for (x,) in loader:
            model(x)
dist.barrier()
del model
dist.destroy_process_group()
