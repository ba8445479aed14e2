"""The loss is finite, but the square root of zero has no finite gradient.

Numerics: non-finite; error; ranks: 0-1; says: at step 3 the gradient of first is the first that is not finite, though
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.first(x).square().sum(dim=1, keepdim=True).sqrt().expand(-1, 4))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(1, 7):
    x = torch.randn(8, 4)
    if step == 3:
        x[0] = 0
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
