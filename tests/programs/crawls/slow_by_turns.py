"""Each step another rank is slow, as with batches of different lengths: nobody is to blame.

Verdict: none
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(150):
    if step == 30:
        print("warm", flush=True)
    time.sleep(0.1 if step * 7 % 4 == dist.get_rank() else 0.02)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del model, optimizer
dist.destroy_process_group()
