"""Under FSDP2 a kernel of rank 1's forward never ends; all hosts have enqueued the step, gathers ahead included.

Options: --preset hang
Fault: kernel-hang kernel=FillFunctor at=40 rank=1
Hang: stuck-on-device; ranks: 1; side: device
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x = torch.ones(4, 8, device="cuda")
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
