import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())

    def step(self, batch):
        self.model(batch).backward()
        self.optimizer.step()

    def train(self, loader):
        for epoch in range(3):
            self.optimizer.zero_grad()
            for batch in loader:
                self.step(batch)  # expect: missing-zero-grad
