import torch


def main(model, loader, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        (model(x) / accum).backward()
        if (i + 1) % accum == 0:  # expect: leftover-steps-dropped
            optimizer.step()
            optimizer.zero_grad()
