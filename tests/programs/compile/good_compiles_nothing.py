"""No torch.compile at all.

Compile: none
"""

import torch

model = torch.nn.Linear(8, 1)
for _ in range(3):
    print("not compiled", end="")
    model(torch.randn(4, 8)).sum().backward()
