import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(model):
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    return DistributedDataParallel(model.cuda(), device_ids=[local_rank])
