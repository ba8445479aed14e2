import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR


def one(model, loader, args):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    for epoch in range(args.epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
            scheduler.step()


def two(model, loader, args):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = OneCycleLR(optimizer, 0.1, total_steps=args.epochs)
    for epoch in range(args.epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        scheduler.step()
