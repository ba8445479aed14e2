import torch
import torch.distributed as dist

from .files import makedirs


def save(folder, model):
    makedirs(folder)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), folder + "/model.pt")
