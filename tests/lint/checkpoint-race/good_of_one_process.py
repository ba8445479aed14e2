import h5py
import torch
import torch.distributed as dist
from torch.utils.data import Dataset


def convert(files, path):
    with h5py.File(path, "w") as file:
        file["files"] = files


class Molecules(Dataset):
    def __init__(self, files, path):
        if dist.is_initialized():
            if dist.get_rank() == 0:
                convert(files, path)
            dist.barrier()
        else:
            convert(files, path)


def keep(args, model):
    if not args.distributed:
        torch.save(model.state_dict(), args.path)
    elif args.rank == 0:
        torch.save(model.module.state_dict(), args.path)
