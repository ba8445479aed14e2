"""Layers are left out at random, and SGD without momentum makes a state for none of them.

Guard: none
"""

import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(12))
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        for layer in self.layers:
            if shared.random() > 0.3:
                x = x + layer(x)
        return self.head(x)


shared = random.Random(0)  # the same layers on all ranks
dist.init_process_group("gloo")
model = DistributedDataParallel(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(150):
    optimizer.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
