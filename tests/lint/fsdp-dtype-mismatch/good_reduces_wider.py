import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def shard(model):
    model = model.bfloat16()
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
