"""NaN stands for what is missing in every batch and is masked; later the model's own forward takes the logarithm of 0.

Numerics: non-finite; error; ranks: 0-1; says: the output of drop is the first seen that is not finite
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Forecaster(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.0)
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, x, floor):
        return self.linear(self.drop((torch.where(x.isnan(), 1.0, x).abs().clamp(max=2.0) * floor).log()))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Forecaster())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 6):
    x = torch.randn(4, 8)
    x[0, 0] = float("nan")
    floor = torch.ones(4, 8)
    floor[2] = float(step != 4)
    loss = model(x, floor).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.barrier()
del model, optimizer, loss
dist.destroy_process_group()
