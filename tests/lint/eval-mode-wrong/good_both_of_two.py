import torch
from torch import nn


def train(model, predictor, loader):
    model.train()
    predictor.train()
    optimizer = torch.optim.Adam([*model.parameters(), *predictor.parameters()])
    for x in loader:
        optimizer.zero_grad()
        predictor(model(x)).mean().backward()
        optimizer.step()


@torch.no_grad()
def test(model, predictor, loader):
    model.eval()
    predictor.eval()
    return [predictor(model(x)) for x in loader]


@torch.no_grad()
def features(model, loader):
    model.eval()
    return [model(x) for x in loader]


train(nn.Dropout(), nn.Linear(4, 1), [])
