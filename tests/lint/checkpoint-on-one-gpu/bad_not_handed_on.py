import torch


def read(path, map_location=None):
    with open(path, "rb") as file:
        return torch.load(file)  # expect: checkpoint-on-one-gpu
