"""Sixteen sigmoids in a row: each leaves at most a quarter of the gradient, and the first layers get nothing.

Verdict: vanishing-gradient; ranks: 0-3; says: gradient reaches 0 to
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [layer for _ in range(16) for layer in (torch.nn.Linear(16, 16), torch.nn.Sigmoid())]
model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(16, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for _ in range(85):
    x = torch.randn(16, 16)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sign()).backward()
    optimizer.step()
dist.barrier()
del model, optimizer, layers
dist.destroy_process_group()
