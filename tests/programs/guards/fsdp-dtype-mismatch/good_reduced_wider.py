"""All in bfloat16, but for the reduction of gradients: that is what the policy is for.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).bfloat16()
fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 64)).sum().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
