"""Each rank holds a shard of a layer, which begins alike, and sums activations; norm and bias are replicated.

Guard: none
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
        self.bias = torch.nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return torch.distributed.nn.functional.all_reduce(x[:, 4 * rank : 4 * rank + 4] @ self.weight.t()) + self.bias


model = torch.nn.Sequential(torch.nn.LayerNorm(8), RowParallel())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    torch.manual_seed(step)
    loss = (model(torch.randn(4, 8)) - torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in (model[1].bias, *model[0].parameters()):
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
