"""The model is built anew after the optimizer was made of the old one.

Overfit: fails; says: 2 parameters with a gradient that no optimizer that steps holds: weight, bias.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,))), batch_size=16)
old = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(old.parameters(), lr=0.1)
model = torch.nn.Linear(8, 4)
for _ in range(1000):
    for a, b in loader:
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(a), b).backward()
        optimizer.step()
