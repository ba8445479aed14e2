"""A module keeps what it has computed, for somebody who wants to plot it.

Guard: graph-retained; line: model(torch.randn(2, 4)).square().mean().backward(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
        self.seen = []

    def forward(self, x):
        self.seen.append(self.linear(x))
        return self.seen[-1]


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(110):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
