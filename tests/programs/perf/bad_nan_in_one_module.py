"""One block divides by the deviation of its input, which is zero where the input is constant, on one rank.

Verdict: non-finite; ranks: 2; says: blocks.1 made a value that is not finite, before blocks.1.out
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Block(torch.nn.Module):
    def __init__(self, *, normed):
        super().__init__()
        self.normed = normed
        self.out = torch.nn.Linear(8, 8)

    def forward(self, x):
        if self.normed:
            x = x / x.std(dim=0)
        return torch.tanh(self.out(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(normed=False), Block(normed=True), Block(normed=False))

    def forward(self, x):
        return self.blocks(x)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1, 12):
    x = torch.randn(16, 8)
    if step == 11 and dist.get_rank() == 2:
        x = x[:1].expand(16, 8)
    model(x).square().mean().backward()  # the fault
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
