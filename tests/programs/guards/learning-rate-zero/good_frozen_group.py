"""One of two groups of parameters is frozen by a learning rate of 0.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.0})
scheduler = LambdaLR(optimizer, [lambda _: 1.0, lambda _: 0.0])
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(2, 4) + dist.get_rank()).square().mean().backward()
    optimizer.step()
    scheduler.step()
dist.barrier()
del model
dist.destroy_process_group()
