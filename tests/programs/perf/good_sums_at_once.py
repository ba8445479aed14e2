"""Sums in one go, and a deep model whose layers are called in a loop.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(40))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


dist.init_process_group("gloo")
model = DistributedDataParallel(Deep())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for _ in range(12):
    model(torch.randn(128, 64)).diff(dim=0).abs().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
