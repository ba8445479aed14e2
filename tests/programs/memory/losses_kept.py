"""Every loss is kept for a mean at the end, and with it the graph that made it.

Verdict: memory-leak; says: `losses` (losses_kept.py:19)
"""

import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 64)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    print(float(sum(losses)) / steps)


train(300)
