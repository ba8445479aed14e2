import torch


def evaluate(model, loader, criterion):
    model.eval()
    total = 0.0
    for x, y in loader:  # expect: eval-with-grad
        total += criterion(model(x), y).item()
    return total
