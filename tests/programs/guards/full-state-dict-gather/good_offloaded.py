"""Offloaded to the CPU, where rank 0 alone keeps it; or left in shards.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(3)))
for layer in model:
    fully_shard(layer)
fully_shard(model)
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
assert bool(state) == (dist.get_rank() == 0)
shards = get_model_state_dict(model)
dist.barrier()
del model, state, shards
dist.destroy_process_group()
