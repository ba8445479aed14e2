import torch
import torch.distributed as dist


def load_model_state(folder):
    name = f"{folder}/last"
    return torch.load(name)  # expect: checkpoint-on-one-gpu


def main(folder, model):
    dist.init_process_group("nccl")
    model.load_state_dict(load_model_state(folder))
