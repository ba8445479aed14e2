"""One rank's share of the data has a record that could not be read.

Verdict: non-finite; ranks: 3; says: the batch already held values that are not finite
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1, 12):
    x = torch.randn(16, 8)
    if step == 11 and dist.get_rank() == 3:
        x[5, 3] = float("nan")
    model(x).square().mean().backward()  # the fault
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
