"""non-contiguous-hot: images are kept with their channels last, and each reshape of the permuted view copies them."""

import torch
from torch import nn

IMAGES = torch.randn(32, 64, 64, 16)


def flat():
    return IMAGES.permute(0, 3, 1, 2).reshape(32, -1)  # the fault


def main(profiler):
    model = nn.Linear(256, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        loss = model(flat()[:, :256]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
