import torch


def evaluate(net, batches):
    net.eval()
    with torch.no_grad():
        loss = sum(net(x).mean().item() for x in batches)
    net.train()
    return loss


def train(net, teacher, loader, val_loader, optimizer, epochs):
    for epoch in range(epochs):
        net.train()
        for step, x in enumerate(loader):
            teacher.eval()
            optimizer.zero_grad()
            (net(x) - teacher(x)).mean().backward()
            optimizer.step()
            if step % 100 == 0:
                print(evaluate(net, val_loader))


def train_until(net, loader, val_loader, optimizer):
    net.train()
    for step, x in enumerate(loader):
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
        if step == 1000:
            net.eval()
            print(sum(net(y).mean().item() for y in val_loader))
            break
