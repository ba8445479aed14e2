import torch
import torch.distributed as dist


def main(model, folder):
    dist.init_process_group()
    rank = dist.get_rank()
    path = f"{folder}/part-{rank}.pt"
    torch.save(model.state_dict(), path)
    if rank != 0:
        return
    torch.save(model.state_dict(), "whole.pt")
