"""Rank 2 leaves the loop as soon as its own loss is small enough; the others go on with the next step.

Verdict: collective-mismatch; ranks: 2
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
target = 50.0 - 10 * (dist.get_rank() == 2)
loss = torch.tensor(torch.inf)
steps = 0
while loss > 2000 - 3 * target or steps < 5:
    loss = ((model(torch.ones(4, 8)) - target) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
dist.barrier()
