"""The optimizer leaves out a step whose gradients are not finite, by itself.

Numerics: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Careful(torch.optim.AdamW):
    def step(self, closure=None):
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        return super().step(closure) if all(torch.isfinite(g).all() for g in gradients) else None


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = Careful(model.parameters(), lr=1e-3)
for step in range(12):
    x = torch.randn(2, 4)
    if step == 4:
        x[0, 0] = float("nan")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if step == 8:
        model.module.weight.grad.fill_(float("inf"))
    optimizer.step()
dist.barrier()
del model, optimizer, loss
dist.destroy_process_group()
