"""FSDP computes in float16, and nothing scales the loss.

Guard: scaler-misused; line: optimizer.step(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    loss = (model(torch.randn(2, 4)) ** 2).mean()
    loss.backward()
    optimizer.step()
dist.barrier()
del model, optimizer, loss
dist.destroy_process_group()
