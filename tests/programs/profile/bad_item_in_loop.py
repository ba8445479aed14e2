"""sync-in-step: the weights of the samples are a list of tensors, and each is read with an `.item()`."""

import torch
from torch import nn


def main(profiler):
    model = nn.Linear(8, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weights = list(torch.rand(2048))
    for _ in range(10):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(10, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        norm = 0.0
        for one in weights:
            norm += one.item()  # the fault
        profiler.step()
