import torch
import torch.distributed as dist


def start():
    dist.init_process_group("nccl")


def sums(values, device, average):
    total = torch.tensor(values, device=device)
    dist.all_reduce(total)
    count = torch.tensor(values)
    count = count.to(device)
    dist.all_reduce(count)
    dist.all_reduce(torch.tensor(values).cuda())
    dist.all_reduce(average)
    return total / count


def totals(losses):
    for total in losses:
        dist.all_reduce(total)
    total = torch.zeros(1)
    return total
