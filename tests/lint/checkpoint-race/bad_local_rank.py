import os

import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])

    def _save(self, epoch):
        torch.save({"epoch": epoch, "model": self.model.module.state_dict()}, "snapshot.pt")

    def train(self):
        for epoch in range(10):
            if self.local_rank == 0 and epoch % 5 == 0:  # expect: checkpoint-race
                self._save(epoch)
