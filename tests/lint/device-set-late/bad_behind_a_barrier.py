import torch
import torch.distributed as dist


def main(rank):
    dist.init_process_group("nccl")
    if rank == 0:
        print("all ranks are there")
    dist.barrier()
    torch.cuda.set_device(rank)  # expect: device-set-late
