import torch
import torch.distributed as dist


def save_if_better(loss, threshold):
    save = torch.zeros(1)
    if dist.get_rank() == 0:
        save += loss < threshold
    dist.broadcast(save, 0)
    if save:
        dist.barrier()


def talk(args, rank):
    while True:
        query = [input()] if rank == 0 else [None]
        if args.distributed:
            dist.broadcast_object_list(query)
        while query[0] == "clear":
            if rank == 0:
                query = [input()]
            else:
                query = [None]
            if args.distributed:
                dist.broadcast_object_list(query)


def count_steps(rank, loader, every):
    shown = 0
    for step, _ in enumerate(loader):
        save = step % every == 0
        if rank == 0:
            shown += 1
            print(shown)
        if save:
            dist.barrier()


def reset(rank, loader, loss):
    for batch in loader:
        better = False
        if better:
            dist.all_reduce(batch)
        if rank == 0:
            better = loss < 1
            print(better)
