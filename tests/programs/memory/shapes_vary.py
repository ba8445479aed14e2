"""Every batch has another length, and is let go: CPU memory goes up and down with it, and nothing is kept.

On a GPU such shapes leave holes (`fragmentation`), which only its allocator's own figures show.

Verdict: none
"""

import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
lengths = torch.Generator().manual_seed(7)
for _ in range(300):
    length = int(torch.randint(16, 1024, (1,), generator=lengths))
    optimizer.zero_grad()
    model(torch.randn(4, length, 64)).square().mean().backward()
    optimizer.step()
