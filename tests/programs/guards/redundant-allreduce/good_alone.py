"""DDP over one rank reduces nothing, so no_sync saves nothing.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
alone, _ = dist.new_subgroups(1)
model = DistributedDataParallel(torch.nn.Linear(4, 1), process_group=alone)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    for _ in range(4):
        (model(torch.randn(2, 4)).square().mean() / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
