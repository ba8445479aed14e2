import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(path, model, optimizer):
    dist.init_process_group("nccl")
    found = torch.load(str(path))  # expect: checkpoint-on-one-gpu
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
