import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def _backward_pass(self, batch, n_micro_batches):
        loss = self.model(batch).mean()
        (loss / n_micro_batches).backward()
        return loss

    def _loss(self, batch):
        return self.model(batch).mean()

    def step(self, batch):
        self.optimizer.zero_grad()
        micro_batches = batch.split(4)
        n_micro_batches = len(micro_batches)
        total = 0.0
        for micro_batch in micro_batches:
            total += (self._backward_pass(micro_batch, n_micro_batches) / n_micro_batches).item()
        self.optimizer.step()
        return total

    def other_step(self, batch, n_micro_batches):
        self.optimizer.zero_grad()
        for micro_batch in batch.split(n_micro_batches):
            loss = self._loss(micro_batch) / n_micro_batches
            loss.backward()
        self.optimizer.step()
