import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)
        self.scale = nn.LayerNorm(8, elementwise_affine=False)
        self.pool = nn.AdaptiveAvgPool1d(1)

    def forward(self, inputs):
        return self.body(inputs)


class Wrapped(nn.Module):
    """Its layers are used by whoever inherits."""

    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(8, 8)

    def forward(self, inputs):
        return inputs


class Child(Wrapped):
    def forward(self, inputs):
        return super().forward(inputs) + self.projection(inputs)


def main(inputs):
    dist.init_process_group("gloo")
    net = Net()
    model = DDP(net)
    other = DDP(Child())
    return net.head(model(inputs)) + other(inputs), torch.zeros(1)
