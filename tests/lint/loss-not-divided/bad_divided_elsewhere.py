import torch


def hits(output, target):
    return output.eq(target).sum().mul(100).div(len(target))


def main(model, loader, accum_steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        model(x).mul(2).backward()  # expect: loss-not-divided
        if (i + 1) % accum_steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
