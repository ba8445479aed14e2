"""A model that is on every rank as a whole anyway, and a small one that is sharded.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4096, 4096, bias=False))
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
small = torch.nn.Linear(64, 64)
fully_shard(small)
get_model_state_dict(small, options=StateDictOptions(full_state_dict=True))
dist.barrier()
del model, state, small
dist.destroy_process_group()
