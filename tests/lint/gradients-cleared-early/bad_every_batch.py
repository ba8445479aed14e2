import torch
from torch import nn


def train(loader, accumulation_steps):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        optimizer.zero_grad()  # expect: gradients-cleared-early
        loss = model(x).mean() / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
