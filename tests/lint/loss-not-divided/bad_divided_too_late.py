import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def _backward_pass(self, batch):
        loss = self.model(batch).mean()
        loss.backward()
        return loss

    def step(self, batch):
        self.optimizer.zero_grad()
        micro_batches = batch.split(4)
        n_micro_batches = len(micro_batches)
        total = 0.0
        for micro_batch in micro_batches:
            loss = self._backward_pass(micro_batch) / n_micro_batches  # expect: loss-not-divided
            total += loss.item()
        self.optimizer.step()
        return total
