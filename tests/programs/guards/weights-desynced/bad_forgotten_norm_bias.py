"""Tensor parallel: the weight of a replicated norm is averaged, and its bias is forgotten.

Guard: weights-desynced; ranks: 0-1
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class RowParallel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 4) / 4)

    def forward(self, x):
        return torch.distributed.nn.functional.all_reduce(x[:, 4 * rank : 4 * rank + 4] @ self.weight.t())


model = torch.nn.Sequential(torch.nn.LayerNorm(8), RowParallel())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    torch.manual_seed(step)
    loss = (model(torch.randn(4, 8)) - torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    dist.all_reduce(model[0].weight.grad)
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
