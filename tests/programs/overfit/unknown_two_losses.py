"""Two networks against each other: one loss falls as the other one rises.

Overfit: unknown; says: 2 lines begin a backward
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 8) + 3), batch_size=16)
maker, judge = torch.nn.Linear(2, 8), torch.nn.Linear(8, 1)
makes = torch.optim.SGD(maker.parameters(), lr=1e-9)
judges = torch.optim.Adam(judge.parameters(), lr=0.1)
noise = torch.randn(16, 2)
for _ in range(1000):
    for (real,) in loader:
        judges.zero_grad()
        (judge(maker(noise).detach()).sigmoid().mean() - judge(real).sigmoid().mean() + 1).backward()
        judges.step()
        makes.zero_grad()
        (1 - judge(maker(noise)).sigmoid().mean()).backward()
        makes.step()
