import torch
from torch import nn


def step(model, x, optimizer):
    optimizer.zero_grad()
    model(x).backward()
    optimizer.step()


def handed_on(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.fc = nn.Linear(8, 2)  # expect: params-not-optimized
    for x in loader:
        step(model, x, optimizer)
