import torch


def gradient_norm(model):
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            norm = p.grad.detach().norm(2)
            total += norm.item() ** 2  # expect: sync-in-step
    return total**0.5


def train(model, loader, device, log):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        log(gradient_norm(model))
        optimizer.step()
