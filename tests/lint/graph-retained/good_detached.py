import torch


def train(model, loader, optimizer):
    losses, total, seen = [], 0.0, torch.zeros(1)
    for x in loader:
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        total += loss.item() * x.size(0)
        seen += loss.data
