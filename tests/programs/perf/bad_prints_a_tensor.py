"""A tensor is printed in each step, left over from a hunt for a bug.

Verdict: sync-in-step; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    outputs = model(torch.randn(16, 16))
    if step > 2:
        print("outputs", outputs)  # the fault
    outputs.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
