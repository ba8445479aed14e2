"""The model takes its inputs wherever they are, and moves them by itself; the script ends with quite another error.

Guard: none
Ends: RuntimeError
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.last = torch.nn.Linear(width, 1)

    def forward(self, x):
        return self.last(torch.empty_like(x, device="cpu").fill_(0.1))


dist.init_process_group("gloo")
model = DistributedDataParallel(Net(4))
for _ in range(3):
    model(torch.randn(2, 4, device="meta")).square().mean().backward()
narrow = DistributedDataParallel(Net(3))
narrow(torch.randn(2, 4, device="meta"))
