import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.frequencies = torch.arange(0, width, 2)

    def forward(self, positions):
        return positions * self.frequencies  # expect: mixed-devices


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rotary = Rotary(width)
        self.linear = nn.Linear(width, width)
        self.scale = torch.tensor([0.5, 2.0])

    def forward(self, x):
        return self.linear(self.rotary(x)) + x / self.scale  # expect: mixed-devices


def main(local_rank):
    model = Net(64)
    model = model.to(f"cuda:{local_rank}").to(local_rank)
    return model
