import random

import torch
import torch.distributed as dist


def main(args):
    dist.init_process_group()
    rank = dist.get_rank()
    seed = args.seed + rank
    random.seed(seed)
    torch.manual_seed(seed)
