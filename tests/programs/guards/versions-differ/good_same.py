"""All ranks have the same versions.

Guard: none
"""

import sys
import types

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
sys.modules["datasets"] = types.SimpleNamespace(__version__="3.0")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
del sys.modules["datasets"]
dist.barrier()
del model
dist.destroy_process_group()
