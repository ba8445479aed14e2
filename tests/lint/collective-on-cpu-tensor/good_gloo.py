import torch
import torch.distributed as dist


def start():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def sums(values):
    total = torch.tensor(values)
    dist.all_reduce(total)
    return total
