import itertools

import torch


def endless(model, loader, accum, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = itertools.cycle(loader)
    for _ in range(steps):
        for _ in range(accum):
            (model(next(batches)) / accum).backward()
        optimizer.step()
        optimizer.zero_grad()


def logged(model, loader, every):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
        if (i + 1) % every == 0:
            print(i)
