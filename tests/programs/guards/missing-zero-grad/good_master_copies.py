"""A bfloat16 model whose float32 copies are stepped: their gradients are overwritten, and nothing clears them.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4).to(torch.bfloat16))
parameters = list(model.parameters())
copies = [p.detach().float().requires_grad_() for p in parameters]
for copy in copies:
    copy.grad = torch.zeros_like(copy)
optimizer = torch.optim.AdamW(copies, lr=1e-3)
for _ in range(12):
    model.zero_grad()
    model(torch.randn(2, 4, dtype=torch.bfloat16)).float().square().mean().backward()
    for parameter, copy in zip(parameters, copies, strict=True):
        copy.grad.copy_(parameter.grad)
    optimizer.step()
    with torch.no_grad():
        for parameter, copy in zip(parameters, copies, strict=True):
            parameter.copy_(copy)
dist.barrier()
del model, optimizer, parameters, parameter
dist.destroy_process_group()
