import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def setup(rank, world_size):
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank), rank=rank, world_size=world_size)


def main(rank, world_size, model):
    setup(rank, world_size)
    return DistributedDataParallel(model.to(rank), device_ids=[rank])
