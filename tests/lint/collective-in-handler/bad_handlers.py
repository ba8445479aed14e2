import atexit

import torch.distributed as dist


class Meter:
    def __init__(self, total):
        self.total = total

    def __del__(self):
        dist.all_reduce(self.total)  # expect: collective-in-handler


def leave():
    dist.barrier()  # expect: collective-in-handler


def train(model, loader):
    atexit.register(leave)
    for x in loader:
        try:
            model(x).mean().backward()
        except RuntimeError:
            dist.barrier()  # expect: collective-in-handler
