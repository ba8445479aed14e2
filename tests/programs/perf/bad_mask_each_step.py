"""A model makes its mask anew in each forward, larger than all that it masks.

Verdict: alloc-in-loop; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, inputs):
        mask = torch.ones(4096, 4096)  # the fault
        return self.layer(inputs) * mask[:32, :64]


dist.init_process_group("gloo")
model = DistributedDataParallel(Masked())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
