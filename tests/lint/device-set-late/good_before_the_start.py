import os

import torch
import torch.distributed as dist


def setup():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    dist.barrier()


def again(rank):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)


def told(rank):
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.cuda.set_device(rank)
