"""Rank 0 alone makes a new group of ranks 0 and 1, which all ranks must do; it waits for rank 1 in there.

Verdict: rank-conditional-collective; ranks: 0; says: new_group_on_rank_0.py:18
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if step == 3 and dist.get_rank() == 0:
        evaluators = dist.new_group([0, 1])
