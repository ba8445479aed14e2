from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, optimizer, data):
        self.model = model
        self.optimizer = optimizer
        self.sampler = DistributedSampler(data)  # expect: missing-set-epoch
        self.loader = DataLoader(data, 8, sampler=self.sampler)

    def train_once(self):
        for batch in self.loader:
            self.optimizer.zero_grad()
            self.model(batch).mean().backward()
            self.optimizer.step()
