"""sync-in-step: the accuracy is counted sample by sample, each with an `.item()`."""

import torch
from torch import nn


def main(profiler):
    model = nn.Linear(8, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        inputs, labels = torch.randn(1024, 8), torch.randint(10, (1024,))
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right = (outputs.argmax(1) == labels).unbind()
        hits = 0
        for one in right:
            hits += one.item()  # the fault
        profiler.step()
