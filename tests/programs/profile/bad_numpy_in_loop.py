"""sync-in-step: in a helper, every row of a table is taken to numpy by itself."""

import torch
from torch import nn

TABLE = list(torch.randn(1024, 4))


def spread(rows):
    total = 0.0
    for row in rows:
        total += row.numpy()[0]  # the fault
    return total


def main(profiler):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        loss = model(torch.randn(16, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        spread(TABLE)
        profiler.step()
