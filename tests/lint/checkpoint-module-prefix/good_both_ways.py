import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, rank, several, path):
    if several:
        model = DDP(model, device_ids=[rank])
    if rank == 0:
        state = model.module.state_dict() if several else model.state_dict()
        torch.save(state, path)


def resumed(model, rank, several, path):
    if several:
        model = DDP(model, device_ids=[rank])
    model.load_state_dict(torch.load(path, map_location="cpu"))
    if rank == 0:
        torch.save(model.state_dict(), path)
