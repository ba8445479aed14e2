import torch
import torch.distributed as dist
from ours.files import rotate_checkpoints


def train(model, folder, steps):
    rank = dist.get_rank()
    for step in range(steps):
        if rank == 0:
            torch.save(model.state_dict(), f"{folder}/{step}.pt")
        rotate_checkpoints(folder, keep=3)  # expect: checkpoint-race
