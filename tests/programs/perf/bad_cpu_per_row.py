"""In a helper, each row of a table is fetched to the host by itself.

Verdict: sync-in-step; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def fetch(rows):
    return [row.cpu() for row in rows]  # the fault


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
table = list(torch.randn(2500, 4))
for _ in range(10):
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept = fetch(table)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
