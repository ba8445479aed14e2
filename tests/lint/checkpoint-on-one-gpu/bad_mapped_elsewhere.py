import torch
import torch.distributed as dist


def warm_start(path, model):
    model.load_state_dict(torch.load(path)["model"])  # expect: checkpoint-on-one-gpu


def resume(path, model):
    model.load_state_dict(torch.load(path, map_location="cpu")["model"])


def main(model, path, again):
    dist.init_process_group("nccl")
    resume(path, model) if again else warm_start(path, model)
