import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model, local_rank, resume):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model.cuda(), device_ids=[local_rank])
    state = [torch.load("start.pt", map_location="cpu") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(state)
    if resume:
        model.module.load_state_dict(state[0])
    return model


def first_rank_only_speaks(model, rank):
    model.load_state_dict(torch.load("start.pt", map_location="cpu"))
    if rank == 0:
        print("loaded")
