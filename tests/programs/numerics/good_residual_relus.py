"""A residual network of convolutions with ReLU, whose branches begin at zero, under mixed precision with a scaler.

Numerics: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = (torch.nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm_one, self.norm_two = torch.nn.BatchNorm2d(width), torch.nn.BatchNorm2d(width)
        torch.nn.init.zeros_(self.norm_two.weight)

    def forward(self, x):
        return torch.relu(x + self.norm_two(self.two(torch.relu(self.norm_one(self.one(x))))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 64, 3, padding=1)
        self.blocks = torch.nn.Sequential(*(Block(64) for _ in range(3)))
        self.out = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.out(self.blocks(torch.relu(self.stem(x))).mean((2, 3)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Net().to(memory_format=torch.channels_last))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=20)
for _ in range(85):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 6, 6)), torch.randint(10, (4,)))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
