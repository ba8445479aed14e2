import deepspeed
import torch.distributed as dist


def inside(tensor):
    first = dist.new_group([0, 1])
    if dist.get_rank() in (0, 1):
        dist.all_reduce(tensor, group=first)
    if dist.get_rank() == 0:
        dist.send(tensor, dst=1)


def between_players(player_collective, metrics):
    if dist.get_rank() != 0:
        player_collective.broadcast_object_list(metrics, src=1)


def by_themselves(rank, tensor):
    if rank < 2:
        pair = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(tensor, group=pair)


def of_a_group_of_deepspeed(rank, group):
    if rank < 4:
        deepspeed.comm.barrier(group=group)
