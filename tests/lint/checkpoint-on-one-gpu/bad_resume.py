import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, path):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    checkpoint = torch.load(path)  # expect: checkpoint-on-one-gpu
    model.load_state_dict(checkpoint["model"])
    return DDP(model.cuda())
