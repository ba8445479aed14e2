import torch.distributed as dist


def first_rank_zero(rank, load):
    if not rank == 0:
        dist.barrier()
    data = load()
    if rank == 0:
        dist.barrier()
    return data
