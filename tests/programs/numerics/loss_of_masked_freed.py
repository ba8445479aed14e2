"""NaN stands for what is missing in every batch, and the model masks it; later the loss takes the logarithm of zero,
and nobody has kept what it gave.

Numerics: non-finite; warning; ranks: 0-1; says: the module is not known, because outputs were no longer there
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Forecaster(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(torch.where(x.isnan(), 0.0, x)).relu()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Forecaster())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 6):
    x = torch.randn(4, 8)
    x[0, 0] = float("nan")
    optimizer.zero_grad()
    (model(x) + (1e-6 if step < 4 else 0.0)).log().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
