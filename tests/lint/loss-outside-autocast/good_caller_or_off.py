import torch
import torch.nn.functional as F


def loss_of(model, images, labels):
    with torch.autocast("cuda", enabled=False):
        features = model(images)
    return F.cross_entropy(features, labels)


def step(model, images, labels):
    with torch.autocast("cuda"):
        logits = model(images)
    loss = F.cross_entropy(logits, labels)
    loss.backward()


def measured_only(model, images, labels):
    with torch.no_grad(), torch.autocast("cuda"):
        logits = model(images)
    return F.cross_entropy(logits, labels).item()


@torch.autocast("cuda")
def train(model, loader, optimizer):
    for images, labels in loader:
        optimizer.zero_grad()
        step(model, images, labels)
        optimizer.step()
