import torch


def evaluate(net, batches):
    net.eval()
    with torch.no_grad():
        return sum(net(x).mean().item() for x in batches)


def train(net, loader, val_loader, optimizer, epochs):
    for epoch in range(epochs):
        net.train()
        for step, x in enumerate(loader):
            optimizer.zero_grad()
            net(x).mean().backward()
            optimizer.step()
            if step % 100 == 0:
                print(evaluate(net, val_loader))  # expect: eval-mode-wrong
