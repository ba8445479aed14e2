import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model, local_rank):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        model.load_state_dict(torch.load("start.pt"))
    return DistributedDataParallel(model.cuda(), device_ids=[local_rank])
