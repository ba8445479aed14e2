import torch
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, grad_accum_every):
        self.accelerator = Accelerator()
        self.grad_accum_every = grad_accum_every
        self.optimizer = torch.optim.Adam(model.parameters())
        self.model, self.optimizer = self.accelerator.prepare(model, self.optimizer)

    def train_step(self, batches):
        for _ in range(self.grad_accum_every):
            loss = self.model(next(batches))
            self.accelerator.backward(loss / self.grad_accum_every)  # expect: redundant-allreduce
        self.optimizer.step()
        self.optimizer.zero_grad()
