"""A generator begins again whenever the loader is empty."""

import torch.distributed as dist


def forever(loader):
    batches = iter(loader)
    while True:  # expect: missing-set-epoch
        try:
            yield next(batches)
        except StopIteration:
            batches = iter(loader)
            yield next(batches)


def rank():
    return dist.get_rank()
