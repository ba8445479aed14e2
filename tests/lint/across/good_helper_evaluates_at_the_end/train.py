import torch

from helper import measure


def train(net, loader, valid_loader, size):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = 0
    for _epoch in range(10):
        net.train()
        for batch in loader:
            optimizer.zero_grad()
            net(batch).sum().backward()
            optimizer.step()
            step += 1
            if step % len(loader) == 0:
                print(measure(net, valid_loader))
