"""A base class of another file has made the optimizer."""

from ours.base import BaseTrainer


class Trainer(BaseTrainer):
    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for batch in loader:
                loss = self.model(batch)
                loss.backward()
                self.optimizer.step()  # expect: missing-zero-grad
                self.log(loss)
