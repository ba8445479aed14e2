import torch


def evaluate(model, criterion, loader):
    total = 0
    with torch.no_grad():
        for x, y in loader:
            loss = criterion(model(x), y)
            total += loss * len(x)
    return total / len(loader)


def plain(model, criterion, loader):
    total = 0
    for x, y in loader:
        loss = criterion(model(x), y)
        total += loss.item()
    return total / len(loader)


def over_scales(model, criterion, scales, y):
    total = 0
    for scale in scales:
        loss = criterion(model(scale), y)
        total += loss
    return total
