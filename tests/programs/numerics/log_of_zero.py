"""A ReLU gives exactly zero for one batch, and the head takes its logarithm.

Numerics: non-finite; error; ranks: 0-1; says: at step 4 the output of head.log is the first that is not finite
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Log(torch.nn.Module):
    def forward(self, x):
        return x.log()


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log = Log()
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.log(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 8)
        self.act = torch.nn.Sigmoid()
        self.head = Head()

    def forward(self, x, scale):
        return self.head(self.act(self.body(x)) * scale)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(1, 9):
    optimizer.zero_grad()
    model(torch.randn(16, 4), 0.0 if step == 4 else 1.0).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
