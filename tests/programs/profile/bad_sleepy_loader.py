"""data-starved: each sample is waited for in the training process itself, as from a slow disk."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __len__(self):
        return 4 * 12

    def __getitem__(self, index):
        time.sleep(0.003)  # the fault
        return torch.randn(64), index % 10


def main(profiler):
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, labels in DataLoader(Files(), batch_size=4):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
