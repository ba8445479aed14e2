"""data-starved: a sample is decoded (here: sorted) in the training process, for longer than the step computes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Decoded(Dataset):
    def __init__(self):
        self.raw = torch.rand(8, 40_000)

    def __len__(self):
        return 4 * 12

    def __getitem__(self, index):
        values = self.raw[index % 8]
        decoded = torch.sort(values)  # the fault
        return decoded.values[:64].clone(), index % 10


def main(profiler):
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, labels in DataLoader(Decoded(), batch_size=4):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
