"""Rank 0 alone averages its loss, and meets the reduction that DDP makes in the backward of the others.

Verdict: rank-conditional-collective; ranks: 0; exit: 1|134|139; says: loss_of_rank_0_only.py:17
On two ranks.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(100):
    model.zero_grad()
    loss = model(torch.ones(4, 8)).sum()
    mean = loss.detach().clone()
    if step == 5 and dist.get_rank() == 0:
        dist.all_reduce(mean)
    loss.backward()
