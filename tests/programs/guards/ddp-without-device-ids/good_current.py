"""Each rank has made its own GPU the current one; device_ids would say nothing more. (GPUs are only told of.)

Guard: none
"""

from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def wrap(net, number):
    model = DistributedDataParallel(net)
    model.device_type, model.device = "cuda", torch.device("cuda", number)
    return model


dist.init_process_group("gloo")
model = wrap(torch.nn.Linear(4, 1), dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with mock.patch.multiple(torch.cuda, is_initialized=lambda: True, current_device=dist.get_rank):
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
