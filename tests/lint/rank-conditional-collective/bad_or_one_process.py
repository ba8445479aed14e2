import torch.distributed as dist


def finish():
    if not dist.is_initialized() or dist.get_rank() == 0:
        print("done")
        dist.barrier()  # expect: rank-conditional-collective


def finish_on_one_or_many(world_size, rank):
    if world_size == 1 or rank == 0:
        dist.barrier()  # expect: rank-conditional-collective
