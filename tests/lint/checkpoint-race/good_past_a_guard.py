import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets


def train(args, model, losses):
    best = None
    for loss in losses:
        if (not best or loss < best) and args.rank <= 0:
            torch.save(model.state_dict(), args.save)
            best = loss
        if not args.distributed or args.rank == 0:
            torch.save(model.state_dict(), args.last)
        if args.save_on_each_node or args.rank == 0:
            torch.save(model.state_dict(), args.last)


def keep(args, path, index):
    if not path or dist.get_rank() == 0:
        if path:
            torch.save(index, path)


def loaders(args):
    if args.rank != 0:
        dist.barrier()
    data = datasets.CIFAR10(root="./data", train=True, download=True)
    if args.rank == 0:
        dist.barrier()
    return DataLoader(data, sampler=DistributedSampler(data))


def rows_of_this_rank(args, rows):
    with open(f"{args.out}.{dist.get_rank()}", "a") as file:
        file.write(",".join(rows))
