import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, folder):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    with open(os.path.join(folder, f"log-{rank}.txt"), "w") as out:
        out.write("started")
    with open(os.path.join(folder, "train.yaml")) as given:
        print(given.read())
    if rank == 0:
        scripted = torch.jit.script(model)
        scripted.save(os.path.join(folder, "init.zip"))
        with open(os.path.join(folder, "done"), "w") as out:
            out.write("done")
    return DDP(model)


def silenced(trainer):
    rank = dist.get_rank()
    with open(os.devnull, "w") as nothing:
        trainer.run(rank, out=nothing)
