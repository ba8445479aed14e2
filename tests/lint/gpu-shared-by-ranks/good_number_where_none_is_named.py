"""A device without an index is one process's: launchers name one."""

import torch
import torch.distributed as dist


def prepare(device):
    dist.init_process_group("nccl")
    try:
        _, index = device.split(":")
        torch.cuda.set_device(int(index))
    except ValueError:
        torch.cuda.set_device(0)
