import torch
import torch.nn.functional as F


def train(model, loader, optimizer, counts, device):
    weights = torch.tensor([1.0 / c for c in counts])
    for images, labels in loader:
        optimizer.zero_grad()
        logits = model(images.to(device))
        loss = F.cross_entropy(logits, labels.to(device), weight=weights.to(device))  # expect: transfer-in-loop
        mean = torch.tensor([0.485, 0.456, 0.406]).to(device)  # expect: transfer-in-loop
        loss = loss + (images.to(device).mean((0, 2, 3)) - mean).sum() * 0
        loss.backward()
        optimizer.step()


def evaluate(model, val_loader):
    with torch.no_grad():
        for images, _ in val_loader:
            hits = torch.zeros(10).cuda()  # expect: transfer-in-loop
            hits += model(images.cuda()).sum(0)
