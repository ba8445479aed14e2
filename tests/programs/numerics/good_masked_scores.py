"""Attention with a mask of -inf in a module of its own, and a fused one.

Numerics: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Causal(torch.nn.Module):
    def forward(self, scores):
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
        return scores.masked_fill(~mask, float("-inf"))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.causal = Causal()
        self.softmax = torch.nn.Softmax(dim=-1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = self.softmax(self.causal(q @ k.transpose(1, 2))) @ v
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), Attention(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(2, 5, 8)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
