"""An iterator is made for each batch, and the script spoils what it got; part of the model is frozen, as it is meant.

Overfit: learns; says: 2 parameters held by an optimizer and frozen (requires_grad is off): 0.weight, 0.bias.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,))), batch_size=16, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
model[0].requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-2)
for _ in range(1000):
    a, b = next(iter(loader))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(a), b).backward()
    optimizer.step()
    a.zero_(), b.zero_()
