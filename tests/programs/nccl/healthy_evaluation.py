"""Healthy: after each epoch all ranks evaluate for longer than the hang timeout; nothing is communicated meanwhile.

Ranks: 2
Verdict: none
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for step in range(5):
        optimizer.zero_grad()
        model(torch.ones(4, 8, device="cuda")).sum().backward()
        optimizer.step()
    model.eval()
    end = time.time() + 8
    with torch.no_grad():
        while time.time() < end:
            for _ in range(100):
                model.module(torch.ones(4, 8, device="cuda")).sum().item()
            time.sleep(0.02)  # its core is wanted by others, too
    model.train()
dist.destroy_process_group()
