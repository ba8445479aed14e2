import torch
from torch import nn


def train(loader, accumulation_steps):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        try:
            (model(x).mean() / accumulation_steps).backward()
        except torch.cuda.OutOfMemoryError:
            optimizer.zero_grad()
            continue
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
