import torch.distributed as dist
from elsewhere import Checkpointer


def train(model, loader, checkpoint_handler, epochs):
    rank = dist.get_rank()
    mine = Checkpointer(model, rank=rank)
    for epoch in range(epochs):
        for x in loader:
            model(x).mean().backward()
        if rank == 0:
            checkpoint_handler.save(model, epoch)
        mine.save(epoch)
