import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width, device):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("steps", torch.arange(width))
        self.half = torch.tensor(0.5)
        self.there = torch.ones(width, device=device)
        self.moved = torch.ones(width)
        self.replaced = torch.ones(width)
        self.table = torch.rand(16, width)
        self.weight = nn.Parameter(torch.ones(width))

    def prepare(self, device):
        self.replaced = self.replaced.to(device)

    def forward(self, x, rows):
        x = self.linear(x) * self.half
        x = x * self.moved.to(x.device)
        y = rows * self.there + rows * self.replaced + rows * self.steps + rows * self.weight
        return x + y + self.table[rows.cpu()].to(x.device)


class Moves(nn.Module):
    """It takes its tensor along by itself."""

    def __init__(self, width):
        super().__init__()
        self.scale = torch.ones(width)

    def _apply(self, function, recurse=True):
        self.scale = function(self.scale)
        return super()._apply(function, recurse)

    def forward(self, x):
        return x * self.scale


class Numbers(nn.Module):
    """A number may meet a tensor of any device."""

    def __init__(self, width, **factory):
        super().__init__()
        self.bins = torch.arange(width)
        self.there = torch.zeros(width, **factory)

    def forward(self, x, temperature, offset: int, scale=2.0):
        bins = (self.bins * temperature + self.bins * offset + self.bins * scale).to(x.device)
        return x * self.there + bins


class OnTheHost(nn.Module):
    """Nobody moves it: its inputs are of the host, too."""

    def __init__(self, width):
        super().__init__()
        self.mean = torch.zeros(width)

    def forward(self, x):
        return x - self.mean


def main(local_rank, device, batch):
    batch = OnTheHost(64)(batch)
    model = nn.Sequential(Net(64, device), Moves(64)).to(device)
    net = Net(64, device).cuda(local_rank)
    other = Moves(64).to(device)
    numbers = Numbers(64, device=device).to(device)
    return model(batch), net, other, numbers
