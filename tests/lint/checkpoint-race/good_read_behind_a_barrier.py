import torch
import torch.distributed as dist


def best_model(model, path, other):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
        torch.load(path, map_location="cpu")
    model.load_state_dict(torch.load(other, map_location="cpu"))
    dist.barrier()
    model.load_state_dict(torch.load(path, map_location="cpu"))
    return model
