import torch


def main(model, loader):
    def loss_of_some(number):
        total = 0
        for _ in range(number):
            outputs = model(next(loader))
            total += outputs.loss  # expect: graph-retained
        return total.item() / number

    return loss_of_some(10)


def evaluate(model, criterion, loader):
    total = torch.zeros(())
    for x, y in loader:
        loss = criterion(model(x), y)
        total += loss * len(x)  # expect: graph-retained
    return total / len(loader)
