"""FSDP computes in float16, and the loss is scaled.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for _ in range(12):
    optimizer.zero_grad()
    loss = (model(torch.randn(2, 4)) ** 2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.barrier()
del model, optimizer, loss
dist.destroy_process_group()
