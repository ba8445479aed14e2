"""The whole model is gathered on every rank, and not offloaded.

Guard: full-state-dict-gather; line: return get_model_state_dict(model, options=options); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def whole_state(model, options):
    return get_model_state_dict(model, options=options)


dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(3)))
for layer in model:
    fully_shard(layer)
fully_shard(model)
state = whole_state(model, StateDictOptions(full_state_dict=True))
assert state["0.weight"].shape == (2048, 2048)
dist.barrier()
del model, state
dist.destroy_process_group()
