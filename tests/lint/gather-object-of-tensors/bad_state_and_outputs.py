import torch
import torch.distributed as dist


def collect(model, batches, world_size):
    found = torch.cat([model(b) for b in batches])
    everything = [None] * world_size
    dist.all_gather_object(everything, found)  # expect: gather-object-of-tensors
    states = [None] * world_size
    dist.gather_object(model.state_dict(), states if dist.get_rank() == 0 else None)  # expect: gather-object-of-tensors
    return everything, states
