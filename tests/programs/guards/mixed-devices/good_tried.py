"""A forward is tried with tensors that have no data, to learn shapes; what it raises is not what the script ends with.

Guard: none
Ends: RuntimeError
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
with contextlib.suppress(RuntimeError):
    model(torch.randn(2, 4, device="meta"))
torch.ones(2) + torch.ones(3)
