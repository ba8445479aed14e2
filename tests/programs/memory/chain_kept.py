"""Each record holds the one before: no container grows, and the memory does, by 256 KiB a step.

Verdict: host-memory-growth; says: a step
"""

import time

import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
record = None
for step in range(600):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)  # as long as a real step: there are lines enough to judge by
    record = (record, bytearray(b"x" * (256 << 10)))
