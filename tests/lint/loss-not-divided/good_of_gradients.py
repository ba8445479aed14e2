import torch


def main(model, loader, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        model(x).backward()
        if (i + 1) % accum == 0 or i + 1 == len(loader):
            for p in model.parameters():
                p.grad.div_(accum)
            optimizer.step()
            optimizer.zero_grad()
