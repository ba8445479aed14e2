from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap_it(model):
    return FSDP(model)  # expect: fsdp-single-unit
