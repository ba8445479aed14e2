"""The schedule moves between the backward and the step.

Guard: scheduler-before-optimizer; line: optimizer.step(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def advance(loss, scheduler, optimizer):
    loss.backward()
    scheduler.step()
    optimizer.step()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
data = TensorDataset(torch.randn(16, 4) + dist.get_rank())
for (x,) in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    advance(model(x).square().mean(), scheduler, optimizer)
dist.barrier()
del model
dist.destroy_process_group()
