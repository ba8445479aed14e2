import torch
from torch import nn


def train(loader, accumulation_steps):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        (model(x).mean() / accumulation_steps).backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()


def train_by_a_test(loader, accumulation_steps):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        if i % accumulation_steps == 0:
            optimizer.zero_grad()
        (model(x).mean() / accumulation_steps).backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
