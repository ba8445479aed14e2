import torch
import torch.distributed as dist


def agree_on_a_folder(folder):
    names = [folder]
    dist.broadcast_object_list(names, src=0)
    parts = [torch.zeros(3) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, torch.ones(3))
    return names[0], parts
