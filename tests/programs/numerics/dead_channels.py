"""Half of the channels never come on, read by a depthwise convolution and, flattened, by a linear layer.

Numerics: dead-units; warning; ranks: 0-1; says: 32 of 64 units of stem
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 64, 3)
        self.depthwise = torch.nn.Conv2d(64, 64, 3, groups=64)
        self.pointwise = torch.nn.Conv2d(64, 64, 1)
        self.out = torch.nn.Linear(64 * 4, 10)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.out(torch.relu(self.pointwise(self.depthwise(x))).flatten(1))


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
with torch.no_grad():
    net.stem.bias[:32] = -50.0
    net.pointwise.bias[:24] = -50.0
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(250):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(8, 3, 6, 6)), torch.randint(10, (8,))).backward()
    optimizer.step()
dist.barrier()
del model, optimizer, net
dist.destroy_process_group()
