import torch
import torch.distributed as dist


def best_model(model, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    model.load_state_dict(torch.load(path, map_location="cpu"))  # expect: checkpoint-race
    return model
