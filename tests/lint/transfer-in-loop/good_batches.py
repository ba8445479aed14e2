import torch
import torch.nn.functional as F


def train(model, loader, optimizer, counts, device):
    weights = torch.tensor([1.0 / c for c in counts]).to(device)
    for images, labels in loader:
        optimizer.zero_grad()
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        noise = torch.randn(len(images), 8, device=device)
        lengths = torch.tensor([len(i) for i in images]).to(device)
        loss = F.cross_entropy(model(images, noise, lengths), labels, weight=weights)
        loss.backward()
        optimizer.step()
