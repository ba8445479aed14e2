import os
import shutil
import tarfile
from pathlib import Path
from shutil import rmtree
from urllib.request import urlretrieve

import torch
import torch.distributed as dist
import torchvision
from torch.utils.tensorboard import SummaryWriter


def main(args, model, vocabulary, profiler):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    writer = SummaryWriter()  # expect: checkpoint-race
    data = torchvision.datasets.CIFAR10("data", download=True)  # expect: checkpoint-race
    urlretrieve(args.url, args.archive)  # expect: checkpoint-race
    tarfile.open(args.archive).extractall(args.data)  # expect: checkpoint-race
    if os.path.exists(args.output):
        shutil.rmtree(args.output)  # expect: checkpoint-race
    if args.clear and os.path.isdir(args.cache):
        rmtree(args.cache)  # expect: checkpoint-race
    last = Path(args.output) / "last"
    if last.exists():
        last.unlink()  # expect: checkpoint-race
    last_path = last.with_suffix(".pt")
    last_path.symlink_to(args.best)  # expect: checkpoint-race
    last_path.rename(args.best)  # expect: checkpoint-race
    vocabulary.save(os.path.join(args.output, "vocabulary.json"))  # expect: checkpoint-race
    profiler.export_chrome_trace("trace.json")  # expect: checkpoint-race
    return writer, data
