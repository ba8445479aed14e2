import os

import torch
import torch.distributed as dist
import yaml
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, configs, folder):
    dist.init_process_group("nccl")
    with open(os.path.join(folder, "train.yaml"), "w") as out:  # expect: checkpoint-race
        yaml.dump(configs, out)
    return DDP(model)
