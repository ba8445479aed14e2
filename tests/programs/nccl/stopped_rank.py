"""Rank 2 is stopped by a signal; the others' devices wait in an all_reduce of gradients.

Verdict: process-stopped; ranks: 2; side: host
"""

import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    if dist.get_rank() == 2 and step == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    loss.item()
