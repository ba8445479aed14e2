import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Agent:
    def __init__(self, model, optimizer, update_freq):
        self.model = DDP(model)
        self.optimizer = optimizer
        self.update_freq = update_freq
        self.count = 0

    def backward(self, loss):
        (loss / self.update_freq).backward()  # expect: redundant-allreduce

    def update(self):
        self.count = (self.count + 1) % self.update_freq
        if self.count % self.update_freq != 0:
            return
        self.optimizer.step()
        self.optimizer.zero_grad()
