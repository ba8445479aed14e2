"""Healthy: FSDP2 gathers ahead on a stream of its own, with long kernels, and ends its step late.

Ranks: 2
Fault: slow-device us=2000
Verdict: none
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4))).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
for first, second in zip(model, list(model)[1:]):
    first.set_modules_to_forward_prefetch([second])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
dist.destroy_process_group()
