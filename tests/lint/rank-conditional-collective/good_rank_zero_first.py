from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def rank_zero_first(local_rank):
    if local_rank not in (-1, 0):
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


def both_sides(rank, tensor):
    if rank == 0:
        tensor.fill_(1)
        dist.broadcast(tensor, src=0)
    else:
        dist.broadcast(tensor, src=0)


def answered_by_who_holds_the_closure(rank, signal, optimizer):
    def closure():
        if rank == 0:
            signal.fill_(1)
            dist.broadcast(signal, src=0)
        return signal.sum()

    if rank == 0:
        optimizer.step(closure)
    else:
        while signal.item():
            dist.broadcast(signal, src=0)
