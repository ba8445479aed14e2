"""Rank 1 leaves out a branch of the model and goes to its next forward, where DDP says so and raises.

Verdict: unused-parameters|rank-exception; ranks: 1; exit: 1; says: find_unused_parameters
On two ranks.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.extra = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, batch):
        hidden = self.shared(batch)
        return self.extra(hidden) if batch.sum() > 0 else hidden


dist.init_process_group("gloo")
model = DistributedDataParallel(Experts())
for step in range(100):
    sign = -1 if step == 4 and dist.get_rank() == 1 else 1
    model(sign * torch.ones(4, 8)).sum().backward()
