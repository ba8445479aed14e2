import torch


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = []
    for x in loader:
        if gradients:
            torch._foreach_zero_(gradients)
        model(x).backward()
        gradients = [p.grad for p in model.parameters()]
        optimizer.step()
