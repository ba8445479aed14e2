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
    return [predictor(model(x)) for x in loader]  # expect: eval-mode-wrong


train(nn.Dropout(), nn.Linear(4, 1), [])
