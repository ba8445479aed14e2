"""A model over several GPUs must not have device_ids, nor one on the CPU beside a GPU that is used for something else.

Guard: none
"""

from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def wrap(net, number):
    model = DistributedDataParallel(net)
    model.device_type, model.device = "cuda", torch.device("cuda", number)
    model.is_multi_device_module = True
    return model


dist.init_process_group("gloo")
spread, plain = wrap(torch.nn.Linear(4, 1), 2 + dist.get_rank()), DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD([*spread.parameters(), *plain.parameters()], lr=0.01)
with mock.patch.multiple(torch.cuda, is_initialized=lambda: True, current_device=lambda: 0):
    for _ in range(12):
        optimizer.zero_grad()
        (spread(torch.randn(2, 4)) + plain(torch.randn(2, 4))).square().mean().backward()
        optimizer.step()
dist.barrier()
del spread, plain
dist.destroy_process_group()
