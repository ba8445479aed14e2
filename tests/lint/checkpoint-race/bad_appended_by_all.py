import os

import torch
import torch.distributed as dist


def log_rows(args, rows):
    if dist.get_rank() == 0:
        print(len(rows))
    with open(os.path.join(args.out, "log.csv"), "a") as file:  # expect: checkpoint-race
        file.write(",".join(rows))
