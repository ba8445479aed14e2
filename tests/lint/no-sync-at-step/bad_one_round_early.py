from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, accum):
        self.model = DDP(model)
        self.accum = accum
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def epoch(self, loader):
        for i, batch in enumerate(loader):
            accum = self.accum
            context = self.model.no_sync if i % accum != 0 else nullcontext  # expect: no-sync-at-step
            with context():
                (self.model(batch) / accum).backward()
            self.update(i)

    def update(self, i):
        if (i + 1) % self.accum == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
