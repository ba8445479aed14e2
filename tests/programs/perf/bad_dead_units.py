"""Biases so low that half of the ReLUs never come on.

Verdict: dead-units; ranks: 0-3; says: 64 of 128 units of hidden
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.other, self.out = torch.nn.Linear(8, 128), torch.nn.Linear(128, 128), torch.nn.Linear(128, 4)

    def forward(self, x):
        return self.out(torch.relu(self.other(torch.relu(self.hidden(x)))))


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
with torch.no_grad():
    net.hidden.bias[:64] = -50.0
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(105):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(32, 8)), torch.randint(4, (32,))).backward()
    optimizer.step()
dist.barrier()
del model, optimizer, net
dist.destroy_process_group()
