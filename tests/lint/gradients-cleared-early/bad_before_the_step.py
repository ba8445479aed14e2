import torch
from torch import nn


class Trainer:
    def __init__(self, model, accelerator, loader):
        self.accelerator = accelerator
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.model, self.optimizer, self.loader = accelerator.prepare(model, optimizer, loader)

    def train(self):
        for x in self.loader:
            loss = self.model(x).mean()
            self.accelerator.backward(loss)
            self.optimizer.zero_grad()  # expect: gradients-cleared-early
            self.optimizer.step()


def scaled(model: nn.Module, loader, optimizer, scaler):
    for x in loader:
        loss = model(x).mean()
        scaler.scale(loss).backward()
        optimizer.zero_grad(set_to_none=True)  # expect: gradients-cleared-early
        scaler.step(optimizer)
        scaler.update()
