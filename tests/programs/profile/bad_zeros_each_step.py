"""alloc-in-loop: a large buffer of zeros is made in each step, and thrown away."""

import torch
from torch import nn


def main(profiler):
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        padded = torch.zeros(2048, 2048)  # the fault
        padded[:32, :64] = torch.randn(32, 64)
        loss = model(padded[:32, :64]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
