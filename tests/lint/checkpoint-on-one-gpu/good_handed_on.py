import torch


def read(path, map_location=None):
    if map_location is None:
        return torch.load(path)
    with open(path, "rb") as file:
        return torch.load(file, map_location=map_location)
