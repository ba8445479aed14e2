"""Each step another rank has the longest batch: nobody is to blame.

Verdict: none
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    time.sleep(0.05 if step % 4 == dist.get_rank() else 0.01)
    torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,))).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
