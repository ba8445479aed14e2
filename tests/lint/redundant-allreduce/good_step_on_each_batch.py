import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Agent:
    def __init__(self, model, optimizer):
        self.model = DDP(model)
        self.optimizer = optimizer
        self.count = 0

    def backward(self, loss):
        loss.backward()

    def update(self):
        self.count += 1
        if self.count % self.log_every == 0:
            print(self.count)
        self.optimizer.step()
        self.optimizer.zero_grad()
