import torch


class Base:
    def train(self, epochs):
        for _ in range(epochs):
            with torch.no_grad():
                self.valid_epoch()


class Trainer(Base):
    def valid_epoch(self):
        self.model.eval()
        for x in self.val_loader:
            self.model(x)
