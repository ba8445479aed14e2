import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, optimizer, rank):
    model = DDP(model, device_ids=[rank])
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "model.pt")


def other(model, rank):
    wrapped = DDP(model, device_ids=[rank])
    wrapped(1)
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")
