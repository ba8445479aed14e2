"""Under DDP rank 1 leaves a branch of the model out: it reduces nothing, and comes to the next all_reduce alone.

Fault: nccl-mismatch
Hang: unused-parameters; ranks: 1; side: host
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x, with_head):
        x = self.body(x)
        return self.head(x) if with_head else x


model = DistributedDataParallel(Branches().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = model(torch.ones(4, 8, device="cuda"), not (dist.get_rank() == 1 and step == 3)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    metric = loss.detach().clone()
    dist.all_reduce(metric)
    torch.cuda.synchronize()
