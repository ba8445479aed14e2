import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model):
    dist.init_process_group("nccl")
    model = model.cuda()
    return DDP(model)  # expect: ddp-without-device-ids
