"""The sampler is made in one method, the loop stands in another."""

from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm


class Trainer:
    def __init__(self, model, dataset, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.loader = self._loader(dataset)

    def _loader(self, dataset):
        sampler = DistributedSampler(dataset)
        return DataLoader(dataset, batch_size=8, sampler=sampler)

    def run(self, max_epochs):
        for epoch in range(max_epochs):
            self.run_epoch(epoch)

    def run_epoch(self, epoch):
        for x, y in tqdm(self.loader):  # expect: missing-set-epoch
            self.optimizer.zero_grad()
            loss = self.model(x, y)
            loss.backward()
            self.optimizer.step()
