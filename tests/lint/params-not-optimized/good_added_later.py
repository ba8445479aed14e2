import torch
from torch import nn


def main(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.fc = nn.Linear(10, 2)
    optimizer.add_param_group({"params": model.fc.parameters(), "lr": 0.01})
    return optimizer
