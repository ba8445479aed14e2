"""An option for debugging sets find_unused_parameters on rank 0 only, whose DDP reduces more than that of rank 1.

Verdict: collective-mismatch; ranks: 0-1; says: find_unused_parameters=True
On two ranks.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
debug = dist.get_rank() == 0
layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
model = DistributedDataParallel(layers, find_unused_parameters=debug)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    optimizer.zero_grad()
    model(torch.ones(8, 16)).sum().backward()
    optimizer.step()
dist.barrier()
