"""A replay buffer that is one array, whose pages are had as they are written to: all was asked for at once.

Verdict: none
"""

import time

import torch

model = torch.nn.Linear(64, 4)
optimizer = torch.optim.Adam(model.parameters())
observations = torch.empty(1000, 64 << 10)
for step in range(600):
    observations[step] = torch.randn(64 << 10)
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)  # as long as a real step: there are lines enough to judge by
