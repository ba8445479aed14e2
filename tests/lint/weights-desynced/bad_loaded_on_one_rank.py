import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model, local_rank):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model.cuda(), device_ids=[local_rank])
    if dist.get_rank() == 0:
        model.module.load_state_dict(torch.load("start.pt"))  # expect: weights-desynced
    return model
