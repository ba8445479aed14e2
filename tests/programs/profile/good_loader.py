"""Healthy: a loader without workers, for samples that lie in memory."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(profiler):
    model = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(16 * 12, 512), torch.randint(10, (16 * 12,)))
    for inputs, labels in DataLoader(data, batch_size=16):
        loss = nn.functional.cross_entropy(model(inputs.repeat(16, 1)), labels.repeat(16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
