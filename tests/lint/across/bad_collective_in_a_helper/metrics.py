import torch.distributed as dist


def mean_over_ranks(value):
    dist.all_reduce(value)  # expect: rank-conditional-collective
    return value / dist.get_world_size()
