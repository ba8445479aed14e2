"""An optimizer has a flat float32 copy of all bfloat16 parameters, written back through `.data` as ZeRO does.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)).to(torch.bfloat16))
parameters = list(model.parameters())
flat = torch.cat([p.detach().float().reshape(-1) for p in parameters]).requires_grad_()
optimizer = torch.optim.AdamW([flat], lr=1e-3)
for _ in range(12):
    model.zero_grad()
    model(torch.randn(2, 64, dtype=torch.bfloat16)).float().square().mean().backward()
    flat.grad = torch.cat([p.grad.float().reshape(-1) for p in parameters])
    optimizer.step()
    for parameter, values in zip(parameters, flat.detach().split([p.numel() for p in parameters]), strict=True):
        parameter.data.copy_(values.view_as(parameter))
dist.barrier()
del model, optimizer, parameters, parameter
dist.destroy_process_group()
