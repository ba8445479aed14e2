import os

import torch


def calibrate(model, path):
    os.environ["WORLD_SIZE"] = "1"
    torch.distributed.init_process_group(backend="nccl", init_method="env://", rank=0)
    model.load_state_dict(torch.load(path))  # expect: checkpoint-on-one-gpu
