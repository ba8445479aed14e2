"""torch.multiprocessing.spawn as in the DDP tutorial: no environment has a rank; `METHOD` may be fork or forkserver."""

import os
import sys

import torch.multiprocessing as mp
from steps import train


def rank_main(index, world_size):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}
    train(index, world_size)


if __name__ == "__main__":
    mp.start_processes(rank_main, args=(2,), nprocs=2, start_method=os.environ.get("METHOD", "spawn"))
