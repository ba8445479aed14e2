import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, rank):
    model = DDP(model, device_ids=[rank])
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")  # expect: checkpoint-module-prefix
