"""One method steps and another one updates; a helper of another file is given the scaler."""

from amp import step_and_update


class Trainer:
    def step(self, batch):
        self.scaler.scale(self.model(batch)).backward()
        self.scaler.step(self.optimizer)
        self.after_step()

    def after_step(self):
        self.scaler.update()


def train(model, loader, optimizer, scaler):
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch)).backward()
        step_and_update(scaler, optimizer)
