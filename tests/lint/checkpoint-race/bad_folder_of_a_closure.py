import os

import torch
import torch.distributed as dist


def main(args, model, optimizer):
    rank = dist.get_rank()
    if rank == 0:
        os.makedirs(args.folder, exist_ok=True)

    def save(step):
        torch.save(optimizer.state_dict(), os.path.join(args.folder, f"optimizer_{rank}.pt"))  # expect: checkpoint-race

    def save_into(folder):  # its caller's folder
        torch.save(optimizer.state_dict(), os.path.join(folder, f"optimizer_{rank}.pt"))

    return save, save_into
