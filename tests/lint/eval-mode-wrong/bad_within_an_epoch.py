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


def train_by_settings(net, loader, val_loader, optimizer, args):
    for epoch in range(args.epochs):
        net.train()
        for step, x in enumerate(loader):
            loss = net(x).mean()
            if args.fp16:
                args.scaler.scale(loss).backward()
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if args.evaluate_during_training and step % args.every == 0:
                print(evaluate(net, val_loader))  # expect: eval-mode-wrong
