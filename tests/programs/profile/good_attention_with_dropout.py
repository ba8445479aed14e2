"""Healthy: with a dropout, a CPU has no other path for attention than the math one."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, inputs):
        query, key, value = self.project(inputs).chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)


def main(profiler):
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        loss = model(torch.randn(2, 2, 256, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
