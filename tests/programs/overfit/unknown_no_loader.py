"""The batches are cut out of a tensor: nothing can be repeated.

Overfit: unknown; says: no DataLoader of torch gave a batch
"""

import torch

x, y = torch.randn(640, 8), torch.randint(0, 4, (640,))
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    a, b = x[step % 40 :][:16], y[step % 40 :][:16]
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(a), b).backward()
    optimizer.step()
