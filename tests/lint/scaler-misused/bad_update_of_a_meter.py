"""A meter is updated, and the scaler is not; the step is in a method."""


class Trainer:
    def step(self, batch):
        self.optimizer.zero_grad()
        loss = self.model(batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)  # expect: scaler-misused
        self.meter.update(loss.item())
