import torch.distributed as dist


def mean_of_ranks(value):
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(value)  # expect: rank-conditional-collective
    return value


def log(value, writer):
    if dist.get_rank() == 0:
        writer.add_scalar("loss", mean_of_ranks(value))
