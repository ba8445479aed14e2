from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap_it(model, how):
    return FSDP(model, auto_wrap_policy=how)
