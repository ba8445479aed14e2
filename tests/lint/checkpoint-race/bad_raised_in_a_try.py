import torch
import torch.distributed as dist


def save(model, path):
    try:
        if dist.get_rank() != 0:
            raise PermissionError("only rank 0 saves")
    except PermissionError:
        pass
    torch.save(model.state_dict(), path)  # expect: checkpoint-race


def save_on_two(model, path):
    try:
        if dist.get_world_size() > 1:
            return
    except RuntimeError:
        pass
    torch.save(model.state_dict(), path)  # expect: checkpoint-race
