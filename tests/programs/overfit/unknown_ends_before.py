"""Three steps, and the script is done.

Overfit: unknown; says: the script ended by itself after 3 of 60 steps
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,))), batch_size=16)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (a, b) in enumerate(loader):
    if step == 3:
        break
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(a), b).backward()
    optimizer.step()
