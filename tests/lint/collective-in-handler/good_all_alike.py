import torch.distributed as dist

try:
    from apex import amp
except ImportError:
    amp = None


def gather(values):
    try:
        out = [None] * dist.get_world_size()
        dist.all_gather_object(out, values)
    except RuntimeError:
        dist.all_gather_object(out, None)
    return out
