import torch


class Recipe:
    def __init__(self, model, batches):
        self.model = model
        self.batches = batches

    def loss_step(self, batch):
        return self.model(batch).mean()

    def validate(self):
        self.model.eval()
        total = 0.0
        for batch in self.batches:
            with torch.no_grad():
                total += self.loss_step(batch).item()
        self.model.train()
        return total

    def train(self, optimizer):
        for batch in self.batches:
            optimizer.zero_grad()
            self.loss_step(batch).backward()
            optimizer.step()
