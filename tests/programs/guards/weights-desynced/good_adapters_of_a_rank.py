"""The base is averaged by hand; each rank trains low-rank adapters of its own in the same module.

Guard: none
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(8, 8)
        self.down, self.up = torch.nn.Linear(8, 2, bias=False), torch.nn.Linear(2, 8, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


model = Adapted()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    torch.manual_seed(step)
    loss = (model(torch.randn(4, 8)) + torch.rand(4, 8) * 1e-3 * (rank + 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.base.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
