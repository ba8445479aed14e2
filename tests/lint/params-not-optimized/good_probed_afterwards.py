import torch
from torch import nn


def fit(model, loader, optimizer):
    for x in loader:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()


def probe_here(model, loader):
    fit(model, loader, torch.optim.SGD(model.fc.parameters(), lr=0.1))


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, loader, optimizer)
    model.fc = nn.Linear(8, 2)
    probe_here(model, loader)
