"""Healthy: attention on the fused path; its heads are merged by one copy, as they must be."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(128, 384), nn.Linear(128, 128)

    def forward(self, inputs):
        parts = self.project(inputs).view(2, 256, 3, 4, 32).unbind(2)
        query, key, value = (part.transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(2, 256, 128))


def main(profiler):
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        loss = model(torch.randn(2, 256, 128)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
