import os

import torch.distributed as dist
from helpers import update_summary
from torch.utils.tensorboard import SummaryWriter


class Engine:
    def __init__(self, args, loader):
        self.rank = dist.get_rank()
        self.loader = loader
        self.folder = args.folder
        self.writer = self.make_summary_writer()

    def make_summary_writer(self):
        return SummaryWriter(self.folder)  # expect: checkpoint-race

    def train(self, epochs):
        for epoch in range(epochs):
            metrics = {"loss": sum(self.loader)}
            update_summary(epoch, metrics, os.path.join(self.folder, "summary.csv"))  # expect: checkpoint-race
