"""The weights of the samples are a list of tensors, and each is read by itself.

Verdict: sync-in-step; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
weights = list(torch.rand(2000))
for _ in range(10):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(10, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = 0.0
    for weight in weights:
        total += weight.item()  # the fault
dist.barrier()
del model, optimizer
dist.destroy_process_group()
