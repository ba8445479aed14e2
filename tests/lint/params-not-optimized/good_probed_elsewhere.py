import torch
from elsewhere import probe
from torch import nn


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
    model.fc = nn.Linear(8, 2)
    probe(model, loader)
