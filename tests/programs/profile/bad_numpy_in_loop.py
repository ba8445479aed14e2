"""sync-in-step: a metric takes every row to numpy by itself, in a helper."""

import torch
from torch import nn


def spread(rows):
    total = 0.0
    for row in rows:
        total += row.numpy()[0]  # the fault
    return total


def main(profiler):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        outputs = model(torch.randn(512, 4))
        loss = outputs.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        spread(outputs.detach().unbind())
        profiler.step()
