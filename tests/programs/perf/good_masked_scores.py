"""Scores are masked with -inf, as attention written out does it.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Causal(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, scores):
        return scores.masked_fill(~self.mask, float("-inf"))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.causal, self.softmax = torch.nn.Linear(32, 96), Causal(32), torch.nn.Softmax(dim=-1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.softmax(self.causal(q @ k.transpose(1, 2))) @ v


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 32), Attention(), torch.nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.randn(8, 32, 32)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
