import torch.distributed as dist


def barrier(group=None):
    if dist.is_initialized():
        dist.barrier(group)
