import torch
from torch import nn


def main(model, other):
    model.fc = nn.Linear(10, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.act = nn.ReLU()
    other.fc = nn.Linear(3, 3)
    return optimizer


def stages(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer)
    model.fc = nn.Linear(10, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer)
