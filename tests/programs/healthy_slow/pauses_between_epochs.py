"""All ranks rest between two epochs, until the file server is less busy. Fools "all ranks asleep in their own code".

Quiet for: 25 s
Verdict: none; exit: 0
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for epoch in range(3):
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.1)
    time.sleep([10, 25, 0][epoch])
dist.barrier()
del model, optimizer
dist.destroy_process_group()
