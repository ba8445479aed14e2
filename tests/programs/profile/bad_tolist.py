"""sync-in-step: all outputs are made a list of Python's in each step, to log a few of them."""

import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.model = nn.Linear(16, 16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.history = []

    def step(self):
        outputs = self.model(torch.randn(16, 16))
        loss = outputs.square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.history = (
            outputs
            .detach()
            .repeat(20, 40)
            .tolist()  # the fault
        )  # fmt: skip


def main(profiler):
    trainer = Trainer()
    for _ in range(10):
        trainer.step()
        profiler.step()
