import torch
from torch import nn


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        if epoch == 1:
            model.fc = nn.Linear(8, 2)  # expect: params-not-optimized
