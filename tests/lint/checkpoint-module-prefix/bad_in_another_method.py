import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, is_ddp):
        self.network = model
        self.is_ddp = is_ddp

    def initialize(self, rank):
        if self.is_ddp:
            self.network = DDP(self.network, device_ids=[rank])

    def save_checkpoint(self, path):
        checkpoint = {
            "weights": self.network.state_dict(),  # expect: checkpoint-module-prefix
        }
        torch.save(checkpoint, path)
