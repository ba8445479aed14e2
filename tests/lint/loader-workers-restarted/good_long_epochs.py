import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


def main(model, optimizer):
    loader = DataLoader(ImageFolder("imagenet"), 256, shuffle=True, num_workers=8)
    train(model, loader, optimizer, 90)
