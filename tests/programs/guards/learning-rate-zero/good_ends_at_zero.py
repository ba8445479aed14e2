"""A cosine ends at 0 with the last step, and a few steps follow.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, SequentialLR

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
cosine = CosineAnnealingLR(optimizer, T_max=40)
scheduler = SequentialLR(optimizer, [cosine, ConstantLR(optimizer, 0.0)], milestones=[40])
for _ in range(44):
    optimizer.zero_grad()
    model(torch.randn(2, 4) + dist.get_rank()).square().mean().backward()
    optimizer.step()
    scheduler.step()
dist.barrier()
del model
dist.destroy_process_group()
