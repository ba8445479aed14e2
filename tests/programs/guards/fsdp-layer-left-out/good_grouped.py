"""Two layers share a unit.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)))
for first in (0, 2):
    fully_shard([model[first], model[first + 1]])
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 2048)).sum().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
