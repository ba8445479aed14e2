"""Predictions are kept until the epoch's end, numbers for ever, and the last losses in a ring: all of it is right.

Verdict: none
"""

import time
from collections import deque

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(60 * 32, 64)), batch_size=32)
history, ring = [], deque(maxlen=1000)
for _ in range(7):
    predictions = []
    for (batch,) in loader:
        optimizer.zero_grad()
        output = model(batch)
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # as long as a real step: there are lines enough to judge by
        predictions.append(output.detach())
        history.append(loss.item())
        ring.append(torch.full((2048,), loss.item()))
