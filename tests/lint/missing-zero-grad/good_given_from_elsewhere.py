"""What is called an optimizer may clear by itself, or be cleared by what this file does not hold."""

from ours.optim import ScheduledOptim, clip
from ours.base import BaseTrainer


def wrapped(model, loader, inner):
    optimizer = ScheduledOptim(inner, lr=0.1)
    for batch in loader:
        model(batch).backward()
        optimizer.step()


def handed_on(model, loader, optimizer):
    for batch in loader:
        model(batch).backward()
        clip(optimizer)
        optimizer.step()


def through_the_model(model, loader, optimizer):
    for batch in loader:
        model.zero_grad(set_to_none=True)
        model(batch).backward()
        optimizer.step()


class Trainer(BaseTrainer):
    def fit(self, loader):
        for batch in loader:
            self.before_batch(batch)
            self.model(batch).backward()
            self.optimizer.step()
