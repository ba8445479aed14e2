import os

import torch
import torch.distributed as dist


def save(folder, model, optimizer):
    rank = dist.get_rank()
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
    dist.barrier()
    path = os.path.join(folder, f"optimizer_{rank}.pt")
    torch.save(optimizer.state_dict(), path)
