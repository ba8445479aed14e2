import torch


def set_mode(models, mode):
    for one in models:
        if mode == "train":
            one.train()
        if mode == "eval":
            one.eval()


def accuracy(model, loader):
    set_mode([model], "eval")
    with torch.no_grad():
        found = sum((model(x).argmax(1) == y).sum() for x, y in loader)
    set_mode([model], "train")
    return found


def main(model, optimizer, loader, val_loader):
    set_mode([model], "train")
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step % 100 == 0:
            print(accuracy(model, val_loader))
