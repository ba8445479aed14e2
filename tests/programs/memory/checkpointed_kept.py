"""A block under activation checkpointing keeps its results on itself: each step's twice, as the backward runs it again.

What checkpointing was to save is kept, and for ever.

Verdict: memory-leak; says: `Block.results` (checkpointed_kept.py:20)
"""

import torch
from torch.utils.checkpoint import checkpoint


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
        self.results = []

    def forward(self, batch):
        result = self.inner(batch)
        self.results.append(result)
        return result


model = torch.nn.ModuleList([Block(), torch.nn.Linear(64, 64)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(200):
    optimizer.zero_grad()
    hidden = checkpoint(model[0], torch.randn(32, 64, requires_grad=True), use_reentrant=False)
    model[1](hidden).square().mean().backward()
    optimizer.step()
