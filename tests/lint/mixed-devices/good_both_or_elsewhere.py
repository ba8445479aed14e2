import torch
import torch.nn as nn
import torch.nn.functional as F


def both(model, loader, optimizer, device):
    criterion = nn.CrossEntropyLoss()
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def at_the_call(model, loader, optimizer):
    for images, labels in loader:
        images = images.cuda()
        loss = F.cross_entropy(model(images), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def back_on_the_host(model, loader, device):
    total = 0.0
    with torch.no_grad():
        for images, labels in loader:
            images = images.to(device)
            scores = model(images).cpu()
            total += F.cross_entropy(scores, labels).item()
    return total


def made_of_it(model, loader, optimizer, device):
    for images, labels in loader:
        images = images.to(device)
        weights = torch.as_tensor(labels, device=device)
        loss = F.cross_entropy(model(images), weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
