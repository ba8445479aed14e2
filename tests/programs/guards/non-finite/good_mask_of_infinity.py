"""A mask of -inf is a parameter that is not trained.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(4, 4)
        self.mask = torch.nn.Parameter(torch.tensor([0.0, 0.0, -torch.inf, -torch.inf]), requires_grad=False)

    def forward(self, rows):
        return torch.softmax(self.scores(rows) + self.mask, dim=1)


dist.init_process_group("gloo")
model = DistributedDataParallel(Masked())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.randn(8, 4))[:, 0].square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
