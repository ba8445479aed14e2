import gdown
import torch

from project.utils import comm


def weights(url, path):
    if comm.is_main_process():
        gdown.download(url, path)
    else:
        comm.synchronize()  # expect: rank-conditional-collective
    return torch.load(path, map_location="cpu")
