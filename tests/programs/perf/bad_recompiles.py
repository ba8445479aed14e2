"""Every batch has another length, and shapes are not to be dynamic.

Verdict: recompile; ranks: 0-3; says: size mismatch
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x):  # the fault
        return self.out(x.tanh())


dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.compile(Net(), backend="eager", dynamic=False)
for length in range(4, 9):
    net(torch.randn(length, 8))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    model(torch.randn(4 + step % 5, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer, net
dist.destroy_process_group()
