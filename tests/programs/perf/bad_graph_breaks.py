"""A compiled model asks in its forward what a tensor holds.

Verdict: graph-break; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.one(x)
        if hidden.sum() > 1e6:  # the fault
            hidden = hidden.clamp(-1, 1)
        return self.two(hidden)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.compile(Net(), backend="eager"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
