import torch

from helper import measure


def run(net, loader, optimizer, training):
    for batch in loader:
        if not training:
            print(measure(net, [batch]))
        loss = net(batch).sum()
        if training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main(net, loader, valid_loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _epoch in range(10):
        net.train()
        run(net, loader, optimizer, True)
        net.eval()
        run(net, valid_loader, optimizer, False)
