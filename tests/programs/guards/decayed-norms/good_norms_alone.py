"""Norms are exempt, and biases are decayed as weights are: torchvision's --norm-weight-decay 0.0.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
body, norm, head = torch.nn.Linear(4, 8, bias=False), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
model = DistributedDataParallel(torch.nn.Sequential(body, norm, head))
others = [*body.parameters(), *head.parameters()]
groups = [{"params": others, "weight_decay": 2e-5}, {"params": norm.parameters(), "weight_decay": 0.0}]
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer, groups, others, body, norm, head
dist.destroy_process_group()
