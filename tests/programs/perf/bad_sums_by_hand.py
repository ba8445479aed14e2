"""A running mean is kept row by row, in a loop of Python's: thousands of operators of a few numbers each.

Verdict: small-kernels; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def keep(means, outputs):
    for mean, output in zip(means, outputs, strict=True):
        mean.mul_(0.9).add_(output, alpha=0.1)  # the fault


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
means = list(torch.zeros(900, 8))
for _ in range(10):
    outputs = model(torch.randn(900, 8))
    outputs.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    keep(means, outputs.detach())
dist.barrier()
del model, optimizer
dist.destroy_process_group()
