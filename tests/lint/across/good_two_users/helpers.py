import torch
from main import LAST


def save(model):
    torch.save(model.state_dict(), LAST)


def clip(optimizer, parameters, scaler):
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
