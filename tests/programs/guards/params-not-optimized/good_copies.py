"""Large parameters are stepped as copies, as offloaded to the host, and small ones themselves: all are trained.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)))
large = [p for p in model.parameters() if p.numel() >= 4096]
small = [p for p in model.parameters() if p.numel() < 4096]
copies = [p.detach().clone().requires_grad_() for p in large]
optimizer = torch.optim.AdamW([{"params": copies}, {"params": small}], lr=1e-3)
for _ in range(12):
    model.zero_grad()
    model(torch.randn(2, 64)).square().mean().backward()
    for parameter, copy in zip(large, copies, strict=True):
        copy.grad = parameter.grad.clone()
    optimizer.step()
    with torch.no_grad():
        for parameter, copy in zip(large, copies, strict=True):
            parameter.copy_(copy)
dist.barrier()
del model, optimizer, large, small, parameter
dist.destroy_process_group()
