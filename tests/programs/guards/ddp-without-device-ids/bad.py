"""The model is moved to the rank's own GPU, which nobody has made the current one. (torch is told of GPUs that
there are not: what stands in DDP's attributes is what a guard can look at.)

Guard: ddp-without-device-ids; line: return model(x).square().mean(); ranks: 1
"""

from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def wrap(net, number):
    model = DistributedDataParallel(net)
    model.device_type, model.device = "cuda", torch.device("cuda", number)
    return model


def loss_of(model, x):
    return model(x).square().mean()


dist.init_process_group("gloo")
model = wrap(torch.nn.Linear(4, 1), dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with mock.patch.multiple(torch.cuda, is_initialized=lambda: True, current_device=lambda: 0):
    for _ in range(12):
        optimizer.zero_grad()
        loss_of(model, torch.randn(2, 4)).backward()
        optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
