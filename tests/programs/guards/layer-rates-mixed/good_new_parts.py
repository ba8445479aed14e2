"""Layer-wise decay, and new cross-attention in every fourth layer, all of it at the full rate.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Block(torch.nn.Module):
    def __init__(self, crosses):
        super().__init__()
        self.mlp = torch.nn.Linear(4, 4)
        self.cross = torch.nn.Linear(4, 4) if crosses else None

    def forward(self, x):
        x = x + self.mlp(x)
        return x if self.cross is None else x + self.cross(x)


dist.init_process_group("gloo")
blocks = torch.nn.Sequential(*(Block(number % 4 == 3) for number in range(12)))
groups = [{"params": block.mlp.parameters(), "lr": 1e-4 * 0.8 ** (11 - n)} for n, block in enumerate(blocks)]
groups += [{"params": block.cross.parameters(), "lr": 1e-3} for block in blocks if block.cross is not None]
model = DistributedDataParallel(torch.nn.Sequential(blocks))
optimizer = torch.optim.AdamW(groups)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer, blocks
dist.destroy_process_group()
