"""The rank by another name."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(net, config):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(net)
    if config.distributed_rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
