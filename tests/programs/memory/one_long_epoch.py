"""An epoch that has not ended yet, whose outputs are kept for its metrics: nobody can know that they are not let go.

Verdict: none
"""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
outputs = []
for (batch,) in DataLoader(TensorDataset(torch.randn(400 * 8, 64)), batch_size=8):
    optimizer.zero_grad()
    output = model(batch)
    output.square().mean().backward()
    optimizer.step()
    time.sleep(0.01)  # as long as a real step: there are lines enough to judge by
    outputs.append(output.detach())
