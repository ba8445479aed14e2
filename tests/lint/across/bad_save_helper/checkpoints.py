import torch


def save_checkpoint(model, path):
    state = {"model": model.module.state_dict()}
    torch.save(state, path)  # expect: checkpoint-race
