"""A module keeps its attention maps "for looking at later", with all that made them.

Verdict: memory-leak; says: `Looker.maps` (maps_on_the_module.py:17)
"""

import torch


class Looker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(32, 32)
        self.maps = []

    def forward(self, batch):
        scores = self.inner(batch) @ batch.mT
        self.maps.append(scores.softmax(-1))
        return self.maps[-1] @ batch


class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.looker = Looker()

    def forward(self, batch):
        return self.looker(batch)


model = Wrapped()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(200):
    optimizer.zero_grad()
    model(torch.randn(4, 24, 32)).square().mean().backward()
    optimizer.step()
