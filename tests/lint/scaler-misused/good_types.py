import torch


def bfloat16(model, loader, loss_of, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()


def on_a_cpu(model, loader, loss_of, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()


def measured(model, loader):
    with torch.no_grad(), torch.autocast("cuda"):
        return [model(x) for x in loader]
