"""A frozen backbone with adapters that begin at zero: their gradients come up from nothing, as they are meant to.

Numerics: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Adapted(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.base = torch.nn.Linear(size, size).requires_grad_(False)
        self.down, self.up = torch.nn.Linear(size, 4, bias=False), torch.nn.Linear(4, size, bias=False)
        torch.nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(*(layer for _ in range(4) for layer in (Adapted(64), torch.nn.GELU())))
head = torch.nn.Linear(64, 4)
model = DistributedDataParallel(torch.nn.Sequential(net, head))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
table = torch.randn(64, 4)
for _ in range(200):
    x = torch.randn(16, 64)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), (x @ table).argmax(1)).backward()
    optimizer.step()
dist.barrier()
del model, optimizer, net, head
dist.destroy_process_group()
