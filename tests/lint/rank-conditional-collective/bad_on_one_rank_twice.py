import torch.distributed as dist


def main(rank, verbose):
    if rank == 0:
        dist.barrier()  # expect: rank-conditional-collective
    if rank == 0 and verbose:
        dist.barrier()  # expect: rank-conditional-collective
