"""A loss of bfloat16 has three digits: it often is the same.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 64).bfloat16())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
rows = torch.randn(8, 64).bfloat16()
for _ in range(12):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(rows), torch.arange(8)).backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
