"""Gradients that would grow are clipped in each step.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.LayerNorm(8, elementwise_affine=False), torch.nn.Linear(8, 1))
model = DistributedDataParallel(net)
x, y = torch.randn(64, 8), torch.randn(64, 1)
with torch.no_grad():
    features = torch.cat([net[0](x), torch.ones(64, 1)], 1)
    curvature = torch.linalg.eigvalsh(2 * features.T @ features / len(x)).max()
optimizer = torch.optim.SGD(model.parameters(), lr=2.07 / float(curvature))
for _ in range(200):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
dist.barrier()
del model, optimizer, net
dist.destroy_process_group()
