import torch
import torch.multiprocessing as mp


def main(seed):
    torch.manual_seed(seed)
    mp.start_processes(worker, nprocs=2, start_method="fork")


def worker(rank):
    return torch.nn.Linear(rank + 1, 4)


def test(worker_of_elsewhere):
    torch.manual_seed(0)
    mp.spawn(worker_of_elsewhere, nprocs=2)
