"""A part is frozen, another has an optimizer of its own that steps every third time.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
frozen = torch.nn.Linear(4, 4).requires_grad_(False)
model = DistributedDataParallel(torch.nn.Sequential(frozen, torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
often = torch.optim.SGD(model.module[1].parameters(), lr=0.01)
seldom = torch.optim.SGD(model.module[2].parameters(), lr=0.01)
for step in range(12):
    often.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    often.step()
    if step % 3 == 2:
        seldom.step()
        seldom.zero_grad()
dist.barrier()
del model
dist.destroy_process_group()
