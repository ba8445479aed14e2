"""FSDP1 gathers the whole model on every rank, as it does by default.

Guard: full-state-dict-gather; line: return model.state_dict(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def whole_state(model):
    return model.state_dict()


dist.init_process_group("gloo")
net = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(3)))
policy = ModuleWrapPolicy({torch.nn.Linear})
model = FullyShardedDataParallel(net, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True)
model(torch.randn(2, 2048)).sum().backward()
state = whole_state(model)
assert state["0.weight"].shape == (2048, 2048)
dist.barrier()
del model, state
dist.destroy_process_group()
