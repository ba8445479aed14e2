import torch.distributed as dist


def wait(local_rank, rank):
    if local_rank != -1:
        dist.barrier()
    if rank is not None:
        dist.barrier()
    if rank >= 0:
        dist.barrier()
