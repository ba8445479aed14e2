"""Each rank looks whether the folder is there, and makes it."""

import os

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(net, output):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(net)
    if not os.path.exists(output):
        os.makedirs(output)  # expect: checkpoint-race
    return model


if __name__ == "__main__":
    main(net, "out")
