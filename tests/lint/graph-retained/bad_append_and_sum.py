import torch


def train(model, loader, optimizer):
    losses = []
    total = 0
    for x in loader:
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        losses.append(loss)  # expect: graph-retained
        total += loss * x.size(0)  # expect: graph-retained
    return losses, total
