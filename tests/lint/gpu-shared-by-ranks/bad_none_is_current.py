import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def setup(rank, world_size):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)  # expect: gpu-shared-by-ranks


def main(rank, world_size, model):
    setup(rank, world_size)
    model = DistributedDataParallel(model.to(rank), device_ids=[rank])
    dist.barrier()
