import torch
from lightning.pytorch.utilities import rank_zero_only


@rank_zero_only
def save(model, rank):
    torch.save(model.state_dict(), "model.pt")
