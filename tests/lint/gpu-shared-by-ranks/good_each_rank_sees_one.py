import os

import torch
import torch.distributed as dist

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("LOCAL_RANK", "0")


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
