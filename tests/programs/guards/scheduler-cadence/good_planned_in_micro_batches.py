"""A schedule that moves with each micro-batch is made for all of them, as accelerate steps it for each process.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 160))
for _ in range(40):
    for micro_batch in range(4):
        model.require_backward_grad_sync = micro_batch == 3
        loss = model(torch.randn(2, 4) + dist.get_rank()).square().mean() / 4
        loss.backward()
        scheduler.step()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model
dist.destroy_process_group()
