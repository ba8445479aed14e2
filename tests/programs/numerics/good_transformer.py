"""A pre-norm transformer with rare words, a head tied to its embedding, and gradients added up over two batches.

Numerics: none
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(1000, 32)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, norm_first=True)
            for _ in range(4)
        )
        self.norm, self.head = torch.nn.LayerNorm(32), torch.nn.Linear(32, 1000, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        h = self.words(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rare = torch.distributions.Categorical(1.0 / torch.arange(1, 1001) ** 2)
for _ in range(85):
    for last in (False, True):
        x = rare.sample((4, 16))
        with nullcontext() if last else model.no_sync():
            torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).div(2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
