import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM


def build(name):
    teacher = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    return model, teacher
