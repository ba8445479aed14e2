"""Each batch's object points at itself through its own method, and holds a tensor: only the collector frees it.

Verdict: reference-cycle; says: held by Batch (
"""

import torch


class Batch:
    def __init__(self):
        self.features = torch.randn(64, 1024)
        self.then = self.flipped  # a bound method holds its object

    def flipped(self):
        return self.features.flip(0)


model = torch.nn.Linear(1024, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(300):
    optimizer.zero_grad()
    model(Batch().then()).square().mean().backward()
    optimizer.step()
    junk = [{"step": [n]} for n in range(300)]  # a script's own objects: what makes the collector run
