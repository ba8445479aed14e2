"""Moved to the CPU, where the labels are, too."""

import torch
import torch.nn.functional as F

device = torch.device("cpu")


def train(model, loader, optimizer):
    for images, labels in loader:
        images = images.to(device)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
