"""A context of another file whose name says that it may hold the reduction back."""

from helpers import sync_only_last
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net, gpu, opt):
        self.model = DistributedDataParallel(net, device_ids=[gpu])
        self.opt = opt

    def forward_backward(self, batch):
        for first in range(0, len(batch), self.microbatch):
            loss = self.model(batch[first : first + self.microbatch]).mean()
            with sync_only_last(self.model, first):
                loss.backward()
