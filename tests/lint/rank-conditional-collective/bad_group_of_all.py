import torch.distributed as dist


def collect(rank, value, parts):
    if rank == 0:
        dist.all_gather_object(parts, value, dist.group.WORLD)  # expect: rank-conditional-collective
        dist.all_to_all_single(parts, value, None, None)  # expect: rank-conditional-collective
        dist.new_group([0, 1], use_local_synchronization=False)  # expect: rank-conditional-collective
