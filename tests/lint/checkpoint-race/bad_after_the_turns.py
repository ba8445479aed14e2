import os
import sys

import torch
import torch.distributed as dist


def main(args, model, features):
    rank = dist.get_rank()
    if args.data is None and rank == 0:
        print("no data")
        sys.exit(1)
    if rank != 0:
        dist.barrier()
    with open(args.cache, "wb") as file:
        torch.save(features, file)
    if rank == 0:
        dist.barrier()
    with open(args.blocks, "wb") as file:  # expect: checkpoint-race
        file.write(b"")
    with open(os.path.join(args.out, "results.txt"), "a") as file:  # expect: checkpoint-race
        file.write("done\n")
    torch.save(model.state_dict(), args.path)  # expect: checkpoint-race
