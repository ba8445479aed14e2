import os

import torch


class Trainer:
    def __init__(self, model, optimizer, loader, snapshot_path):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.snapshot_path = snapshot_path
        if os.path.exists(snapshot_path):
            self.load(snapshot_path)

    def load(self, snapshot_path):
        self.model.load_state_dict(torch.load(snapshot_path)["model"])

    def save(self):
        torch.save({"model": self.model.state_dict()}, self.snapshot_path)  # expect: checkpoint-not-atomic

    def train(self, epochs):
        for _ in range(epochs):
            for x in self.loader:
                self.optimizer.zero_grad()
                self.model(x).mean().backward()
                self.optimizer.step()
            self.save()
