"""A class that only steps both, and a schedule of another library in each batch."""

from ours.schedules import PolyLR
from torch import optim


class Both:
    def __init__(self, optimizer, scheduler):
        self.optimizer = optimizer
        self.scheduler = scheduler

    def step(self):
        self.scheduler.step()  # expect: scheduler-before-optimizer
        self.optimizer.step()


def train(model, loader, total):
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scheduler = PolyLR(optimizer, total)
    for x in loader:
        scheduler.step()  # expect: scheduler-before-optimizer
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
