import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict


def save(model, sharded):
    if sharded or dist.get_rank() == 0:
        return get_model_state_dict(model)
    return None


def save_behind(model, sharded):
    if dist.get_rank() != 0 and not sharded:
        return None
    return get_model_state_dict(model)
