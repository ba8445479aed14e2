"""DDP's communication hook of rank 1 uploads a norm to a tracker that does not answer; rank 0 is in backward.

Verdict: stuck-in-python; ranks: 1; says: comm_hook_sleeps.py:17
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def hook(calls, bucket):
    calls.append(bucket.index())
    while len(calls) > 5 and dist.get_rank() == 1:
        time.sleep(1)
    reduced = dist.all_reduce(bucket.buffer().div_(4), async_op=True).get_future()
    return reduced.then(lambda future: future.value()[0])


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
model.register_comm_hook([], hook)
for step in range(100):
    model(torch.ones(4, 8)).sum().backward()
