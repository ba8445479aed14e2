import torch
from torch.optim.lr_scheduler import CosineAnnealingLR


def one(model, loader, epochs, rounds):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, T_max=epochs * rounds)
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
            scheduler.step()


def bound_first(model, loader, epochs, per_epoch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole = per_epoch * epochs
    scheduler = CosineAnnealingLR(optimizer, whole)
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
            scheduler.step()
