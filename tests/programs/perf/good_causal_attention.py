"""Causal attention on the fused path; its heads are merged by one copy, as they must be.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = torch.nn.Linear(128, 384), torch.nn.Linear(128, 128)

    def forward(self, inputs):
        parts = self.project(inputs).view(2, 128, 3, 4, 32).unbind(2)
        query, key, value = (part.transpose(1, 2) for part in parts)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(2, 128, 128))


dist.init_process_group("gloo")
model = DistributedDataParallel(Attention())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    model(torch.randn(2, 128, 128)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
