"""A frozen teacher is in bfloat16: nothing steps on it.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
teacher = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).bfloat16().requires_grad_(False)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
fully_shard(teacher, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(teacher(torch.randn(2, 64))).sum().backward()
    optimizer.step()
dist.barrier()
del model, teacher, optimizer
dist.destroy_process_group()
