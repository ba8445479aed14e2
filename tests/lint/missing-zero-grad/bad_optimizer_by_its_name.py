import torch


def train(args, model, loader):
    optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=args.lr)
    for x in loader:
        model(x).mean().backward()
        optimizer.step()  # expect: missing-zero-grad
