import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR


def cyclic(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = CyclicLR(optimizer, 0.01, 0.1, step_size_up=200)
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
            scheduler.step()


def restarts(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=epochs)
    for epoch in range(epochs):
        for i, x in enumerate(loader):
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
            scheduler.step(epoch + i / len(loader))


def per_epoch(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, T_max=epochs)
    for epoch in range(epochs):
        for i, x in enumerate(loader):
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        scheduler.step()
