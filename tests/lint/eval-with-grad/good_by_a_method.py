import torch


class Trainer:
    def __init__(self, generator, critic, batches):
        self.models = {"generator": generator, "critic": critic}
        self.batches = batches
        self.total = 0.0

    def evaluate(self):
        for name in self.models:
            self.models[name].eval()
        for batch in self.batches:
            self.evaluate_step(batch)

    @torch.no_grad()
    def evaluate_step(self, batch):
        self.total += self.models["generator"](batch).mean().item()
