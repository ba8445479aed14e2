"""A schedule is shorter than the training: half of the steps have a learning rate of 0.

Guard: learning-rate-zero; line: scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 20)); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 20))
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(2, 4) + dist.get_rank()).square().mean().backward()
    optimizer.step()
    scheduler.step()
dist.barrier()
del model
dist.destroy_process_group()
