import torch
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


def main(model, optimizer):
    data = CIFAR10("data", train=True)
    loader = DataLoader(data, 512, shuffle=True, num_workers=8, persistent_workers=True)
    train(model, loader, optimizer, 200)
