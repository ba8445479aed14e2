import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def train(rank, model):
    dist.init_process_group("nccl", rank=rank, world_size=2)
    model = DistributedDataParallel(model.cuda(rank))
    torch.save(model.module.state_dict(), f"model_{rank}.pt")


def test(model, path):
    model.load_state_dict(torch.load(path))


def main(model, path):
    mp.spawn(train, args=(model,), nprocs=2)
    test(model, path)
