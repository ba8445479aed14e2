"""alloc-in-loop: a model makes its causal mask anew in each forward, larger than all it masks."""

import torch
from torch import nn


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, inputs):
        mask = torch.ones(4096, 2048)  # the fault
        return self.layer(inputs) * mask[:32, :64]


def main(profiler):
    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
