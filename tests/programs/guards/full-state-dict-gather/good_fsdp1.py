"""FSDP1 gives each rank its own shards. (To offload on a machine without a GPU is an error of torch's own.)

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
net = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(3)))
policy = ModuleWrapPolicy({torch.nn.Linear})
model = FullyShardedDataParallel(net, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True)
model(torch.randn(2, 2048)).sum().backward()
with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    state = model.state_dict()
assert len(state) == len(net)
dist.barrier()
del model, state
dist.destroy_process_group()
