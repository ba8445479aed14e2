"""No word of the loop says epoch: what it calls does."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Trainer:
    def __init__(self, model, loaders, optimizer):
        self.model, self.loaders, self.optimizer = model, loaders, optimizer
        self.loaders = loaders

    def run(self):
        while not self.finished:  # expect: missing-set-epoch
            self._train_epoch()

    def _train_epoch(self):
        for batch in self.loaders["train"]:
            loss = self.model(batch).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main(data, net, optimizer):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(data)
    loaders = {"train": DataLoader(data, sampler=sampler, batch_size=8)}
    Trainer(DDP(net), loaders, optimizer).run()
