import torch
from torch import nn


def train(loader, accumulation_steps):
    model, head = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    of_the_head = torch.optim.SGD(head.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        of_the_head.zero_grad()
        head(x).mean().backward()
        of_the_head.step()
        (model(x).mean() / accumulation_steps).backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
