import torch
import torch.multiprocessing as mp


def main(seed):
    torch.manual_seed(seed)
    mp.spawn(worker, nprocs=2, args=(2, seed))


def set_all_seeds(seed):
    torch.manual_seed(seed)


def worker(rank, world_size, seed):
    set_all_seeds(seed + rank)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    return torch.nn.Linear(4, 4)


if __name__ == "__main__":
    main(1)
