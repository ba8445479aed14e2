import torch
from torch import nn


def train_epoch(model, optimizer, loader):
    for x in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()


def train(loader):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        train_epoch(model, optimizer, loader)
        torch.nn.utils.clip_grad_norm_(parameters=model.parameters(), max_norm=1.0)  # expect: clip-after-step
        print(epoch)
