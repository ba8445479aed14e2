"""Sharpness-aware steps, and LBFGS with its closure.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class SAM(torch.optim.Optimizer):
    """Climbs to the worst point nearby, and steps from where it was by the gradient there."""

    def __init__(self, parameters, base, **options):
        super().__init__(parameters, options)
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["old"] = parameter.data.clone()
            parameter.add_(parameter.grad, alpha=0.05)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.data = self.state[parameter]["old"]
        self.base.step()
        self.zero_grad()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
x = torch.randn(8, 4)
sharp = SAM(model.parameters(), torch.optim.SGD, lr=0.01)
for _ in range(12):
    model(x).square().sum().backward()
    sharp.first_step()
    model(x).square().sum().backward()
    sharp.second_step()
newton = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)


def closure(model=model, newton=newton):
    newton.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    return loss


for _ in range(12):
    newton.step(closure)
dist.barrier()
del model, newton, sharp, closure
dist.destroy_process_group()
