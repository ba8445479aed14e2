"""Under FSDP2 rank 1 sleeps in the middle of the model; the others have gathered ahead on another stream.

Hang: stuck-in-python; ranks: 1; says: fsdp_rank_sleeps.py:24; side: host; module: 2; phase: forward
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))


class Middle(torch.nn.Module):
    steps = 0

    def forward(self, x):
        self.steps += 1
        if dist.get_rank() == 1 and self.steps == 4:
            time.sleep(3600)
        return x


model = torch.nn.Sequential(torch.nn.Linear(8, 8), Middle(), torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
for layer in (model[0], model[2], model[3]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
