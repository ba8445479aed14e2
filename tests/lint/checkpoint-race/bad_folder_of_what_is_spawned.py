import os

import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank, world_size, model, name):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    model = DDP(model, device_ids=[rank])
    if not os.path.exists(f"./runs/{name}"):
        os.makedirs(f"./runs/{name}")  # expect: checkpoint-race


def start(rank, world_size, model, name):
    train(rank, world_size, model, name)


if __name__ == "__main__":
    os.makedirs(os.environ["OUT"])
    mp.spawn(start, args=(2, None, "a"), nprocs=2)
