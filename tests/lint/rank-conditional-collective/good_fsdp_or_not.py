import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, args, gathered):
    if args.fsdp:
        model = FSDP(model)
    if dist.get_rank() == 0:
        torch.save({"model": gathered if args.fsdp else model.state_dict()}, "model.pt")
