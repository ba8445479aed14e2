import os
import pickle

import torch


def save(model, folder):
    try:
        import torch.distributed as dist

        if dist.is_initialized() and dist.get_rank() != 0:
            return
    except (ImportError, RuntimeError):
        pass
    os.makedirs(folder)
    torch.save(model.state_dict(), folder + "/model.pt")


def save_settings(settings, path, lock, rank):
    with lock:
        if rank != 0:
            return
    with open(path, "wb") as file:
        pickle.dump(settings, file)
