import os
import uuid

import torch
import torch.distributed as dist
import torchvision
from torchvision.utils import save_image


def main(args, model, loader, main_process_first):
    rank = dist.get_rank()
    if rank != 0:
        dist.barrier()
    data = torchvision.datasets.CIFAR10("data", download=True)
    if rank == 0:
        dist.barrier()
    for batch in loader:
        names = batch["name"]
        out = os.path.join(args.out, names[0])
        save_image(model(batch), out + ".png")
    save_image(model(data), f"{args.out}/{uuid.uuid4()}.png")
    return data


def caches(args, features, main_process_first):
    rank = dist.get_rank()
    with main_process_first():
        if not os.path.exists(args.cache):
            with open(args.cache, "wb") as file:
                torch.save(features, file)
    return rank


def tables(table, text, rank):
    if table.exists():
        table = table.rename({"a": "b"})
    return text.replace("x", "y"), table.rename(columns={"a": "b"}), rank
