import torch
import torch.distributed as dist


def setup(rank, on_gpu):
    if not on_gpu:
        dist.init_process_group("gloo")
        dist.barrier()
    else:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl")


def of_the_host(rank):
    dist.init_process_group("gloo")
    dist.barrier()
    torch.cuda.set_device(rank)
