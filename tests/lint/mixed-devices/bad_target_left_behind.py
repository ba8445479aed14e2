import torch
import torch.nn as nn
from torch.utils.data import DataLoader


def train(model, dataset, device):
    loader = DataLoader(dataset, batch_size=8)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(device)
    for step, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)  # expect: mixed-devices
        loss.backward()
        optimizer.step()
        print(step, labels.size(0))
