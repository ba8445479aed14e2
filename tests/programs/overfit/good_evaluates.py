"""A small classifier with dropout, which evaluates before it trains and after every few steps.

Overfit: learns; says: dropout
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

x, y = torch.randn(128, 8), torch.randint(0, 4, (128,))
train = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
valid = DataLoader(TensorDataset(x + 1, y), batch_size=16)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def evaluate():
    model.eval()
    with torch.no_grad():
        batches = sum(1 for a, _ in valid if model(a) is not None)
    model.train()
    assert batches == 8, f"evaluation saw {batches} batches"


evaluate()
for _ in range(100):
    for step, (a, b) in enumerate(train):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(a), b).backward()
        optimizer.step()
        if step % 20 == 19:
            evaluate()
raise AssertionError("the batch was not repeated: the passes came to their end")
