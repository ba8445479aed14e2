"""Under FSDP2 rank 0 alone gathers the whole weights to save them; the others are in the next step's gathers.

Fault: nccl-mismatch
Without stacks: unknown by logs
Hang: rank-conditional-collective|collective-mismatch|collective-shape-mismatch; ranks: 0; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
model = torch.nn.Sequential(torch.nn.Linear(9, 12), torch.nn.Linear(12, 9)).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    model(torch.ones(4, 9, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    if step == 3 and dist.get_rank() == 0:
        whole = {name: value.full_tensor() for name, value in model.state_dict().items()}
