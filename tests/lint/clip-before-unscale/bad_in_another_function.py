import torch
from torch.nn.utils import clip_grad_norm_


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.scaler = torch.amp.GradScaler("cpu")

    def clip(self):
        clip_grad_norm_(self.model.parameters(), 1.0)  # expect: clip-before-unscale

    def train(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            self.scaler.scale(self.model(x)).backward()
            self.clip()
            self.scaler.step(self.optimizer)
            self.scaler.update()


if __name__ == "__main__":
    layer = torch.nn.Linear(4, 1)
    trainer = Trainer(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
    trainer.train([torch.randn(1, 4)] * 3)
