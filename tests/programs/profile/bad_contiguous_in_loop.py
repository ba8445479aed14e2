"""non-contiguous-hot: the same transposed table is made contiguous for each part of the batch anew."""

import torch
from torch import nn


def main(profiler):
    model = nn.Linear(64, 1024)
    table = torch.randn(1024, 1024).t()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        loss = 0
        for part in torch.randn(4, 1, 64):
            loss = loss + (model(part) * table.contiguous()[:1]).mean()  # the fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
