"""A schedule as transformers makes them, with a warm-up that is longer than the steps it was planned for.

Guard: warmup-too-long; line: return LambdaLR(optimizer, shape); ranks: 0-1
"""

from functools import partial

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR


def factor(step, *, num_warmup_steps, num_training_steps):
    if step < num_warmup_steps:
        return step / num_warmup_steps
    return max(0.0, (num_training_steps - step) / (num_training_steps - num_warmup_steps))


def linear_with_warmup(optimizer, steps):
    shape = partial(factor, num_warmup_steps=100, num_training_steps=steps)
    return LambdaLR(optimizer, shape)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = linear_with_warmup(optimizer, 40)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    scheduler.step()
dist.barrier()
del model
dist.destroy_process_group()
