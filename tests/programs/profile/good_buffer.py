"""Healthy: what the others make in each step is made once; a transposed table is used as the view that it is."""

import torch
from torch import nn


def main(profiler):
    model = nn.Linear(64, 256)
    table, mask = torch.randn(256, 256).t(), torch.ones(1024, 256)
    padded = torch.zeros(1024, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        padded.zero_()
        padded[:32] = torch.randn(32, 64)
        loss = ((model(padded) @ table) * mask).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
