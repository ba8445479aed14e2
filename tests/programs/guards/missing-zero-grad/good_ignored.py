"""Nobody clears the gradients, and a comment says that this is meant.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(model, optimizer):
    for _ in range(12):
        model(torch.randn(2, 4)).square().sum().backward()
        optimizer.step()  # distdbg: ignore[missing-zero-grad]


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train(model, optimizer)
dist.barrier()
del model
dist.destroy_process_group()
