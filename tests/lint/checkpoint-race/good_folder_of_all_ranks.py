"""One rank makes it, or it may be there already."""

import os

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(net, output):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(net)
    os.makedirs(output, exist_ok=True)
    if dist.get_rank() == 0 and not os.path.exists(f"{output}/logs"):
        os.makedirs(f"{output}/logs")
    try:
        os.mkdir(f"{output}/plots")
    except FileExistsError:
        pass
    os.makedirs(f"{output}/rank-{dist.get_rank()}")
    return model


if __name__ == "__main__":
    main(net, "out")
