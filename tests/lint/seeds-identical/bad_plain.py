import torch
import torch.distributed as dist


def main(args):
    dist.init_process_group()
    rank = dist.get_rank()
    torch.manual_seed(args.seed)  # expect: seeds-identical
    print(rank)


main(None)
