import torch
from torch.nn.parallel import DistributedDataParallel


def save(model, rank):
    model = DistributedDataParallel(model, device_ids=[rank])
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")


def load(model):
    state = torch.load("model.pt", map_location="cpu")
    torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    model.load_state_dict(state)
