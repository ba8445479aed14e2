"""Healthy: the loss is read once a step, as a progress bar wants it, and the hits are summed before they are read."""

import torch
from torch import nn


def main(profiler):
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    total, hits = 0.0, 0
    for _ in range(10):
        inputs, labels = torch.randn(256, 512), torch.randint(10, (256,))
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        hits += int((outputs.argmax(1) == labels).sum())
        profiler.step()
