import torch
import torch.distributed as dist


def collect(model, batches, world_size):
    found = torch.cat([model(b) for b in batches])
    rows = [None] * world_size
    dist.all_gather_object(rows, {"n": len(found), "mean": found.mean().item()})
    return rows
