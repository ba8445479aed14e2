import torch


def train(model, loader, optimizer, device):
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        total += loss.item()  # expect: sync-in-step
    return total / len(loader)
