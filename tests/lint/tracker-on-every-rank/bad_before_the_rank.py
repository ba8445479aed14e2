import argparse

import torch
import wandb
from torch.nn.parallel import DistributedDataParallel


def main():
    args = argparse.Namespace(rank=0, name="run")
    if args.name:
        wandb.init(project=args.name, config=vars(args))  # expect: tracker-on-every-rank
    torch.distributed.init_process_group("nccl")
    args.rank = torch.distributed.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
    if args.rank == 0:
        wandb.log({"parameters": sum(p.numel() for p in model.parameters())})


main()
