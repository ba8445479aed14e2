import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, path, samples):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    optimizer_state = torch.load(path, f"cuda:{local_rank}")
    data = torch.load(samples)
    return DDP(model.cuda()), optimizer_state, data
