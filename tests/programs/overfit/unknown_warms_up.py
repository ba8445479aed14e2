"""A long warm-up: the learning rate is next to nothing within these steps, and rises.

Overfit: unknown; says: the learning rate was still rising at the end
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,))), batch_size=16)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 100_000)
for _ in range(1000):
    for a, b in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(a), b).backward()
        optimizer.step()
        scheduler.step()
