"""A loss is summed over 300 rows in a loop of Python's: so many operators of a microsecond each.

Verdict: small-kernels; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def smoothness(outputs):
    total = outputs.new_zeros(())
    for before, after in zip(outputs.unbind()[:-1], outputs.unbind()[1:], strict=True):
        total = total + (after - before).abs().sum()  # the fault
    return total


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for _ in range(10):
    smoothness(model(torch.randn(300, 8))).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
