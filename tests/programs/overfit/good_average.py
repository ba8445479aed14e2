"""An average of the weights stands beside the model, and nobody trains it; the batches are dictionaries.

Overfit: learns; says: The script was ended after 60 steps
"""

import copy

import torch
from torch.utils.data import DataLoader

samples = [{"x": torch.randn(8), "y": torch.randn(2)} for _ in range(64)]
model = torch.nn.Linear(8, 2)
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1000):
    for batch in DataLoader(samples, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        (model(batch.pop("x")) - batch.pop("y")).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(now, 0.1)
