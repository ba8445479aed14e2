"""A model that is compiled whole, and trained on batches of one shape.

Compile: none
"""

import torch

torch.manual_seed(0)
model = torch.compile(
    torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)), backend="eager"
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
