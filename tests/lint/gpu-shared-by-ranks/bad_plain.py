import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model):
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)  # expect: gpu-shared-by-ranks
    return DistributedDataParallel(model.cuda(), device_ids=[0])  # expect: gpu-shared-by-ranks
