import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def wrap(model):
    model.to(torch.bfloat16)
    half = MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16)  # expect: fsdp-dtype-mismatch
    return FSDP(model, mixed_precision=half)
