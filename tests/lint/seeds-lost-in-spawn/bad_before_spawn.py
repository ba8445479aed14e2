import torch
import torch.multiprocessing as mp


def main(seed):
    torch.manual_seed(seed)  # expect: seeds-lost-in-spawn
    mp.spawn(worker, nprocs=2, args=(2,))


def worker(rank, world_size):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    model = torch.nn.Linear(4, 4)
    return model


if __name__ == "__main__":
    main(1)
