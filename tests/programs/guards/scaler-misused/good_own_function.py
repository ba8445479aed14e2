"""A function of the script's own scales the loss, and an optimizer of its own unscales the gradients.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss):
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1024


class Unscaling(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            torch._foreach_div_([p.grad for p in group["params"]], 1024.0)
        return super().step(closure)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = Unscaling(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(24, 4) + dist.get_rank(), torch.randn(24, 1))
for x, y in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    Scaled.apply(loss).backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
