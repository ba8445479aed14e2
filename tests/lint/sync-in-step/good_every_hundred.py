import torch


def gradient_norm(model):
    norms = [p.grad.detach().norm(2) for p in model.parameters() if p.grad is not None]
    return torch.stack(norms).norm(2)


def sizes(model):
    total = 0
    for p in model.parameters():
        total += p.numel()
    return total


def train(model, loader, optimizer, device):
    total = torch.zeros((), device=device)
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        norm = gradient_norm(model)
        optimizer.step()
        total += loss.detach()
        if step % 100 == 0:
            print(step, loss.item(), norm.item(), sizes(model))
    return total.item() / len(loader)


def train_quietly(model, loader, optimizer, device):
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        if step % 50:
            continue
        print(float(loss))
