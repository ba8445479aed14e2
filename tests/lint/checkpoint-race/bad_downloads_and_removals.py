import os
import shutil
from pathlib import Path
from shutil import rmtree

import torch
import torch.distributed as dist


def main(args, model):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    if os.path.exists(args.output):
        shutil.rmtree(args.output)  # expect: checkpoint-race
    if args.clear and os.path.isdir(args.cache):
        rmtree(args.cache)  # expect: checkpoint-race
    last = Path(args.output) / "last"
    if last.exists():
        last.unlink()  # expect: checkpoint-race
    return rank
