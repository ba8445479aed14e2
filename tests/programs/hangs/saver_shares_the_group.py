"""A saver gathers in a thread, over the group that the training uses: rank 0's gather comes before its next sum, and
rank 1's after it.

Verdict: collective-mismatch; ranks: 0-1; says: its thread saver_0 is in all_gather at saver_shares_the_group.py:19
On two ranks.
"""

import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(weight):
    for _ in range(3):
        parts = [torch.zeros_like(weight) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, weight)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    dist.all_reduce(torch.ones(10))
    if step == 8:
        saver = threading.Thread(target=save, args=(model.module.weight.detach().clone(),), name="saver_0")
        if dist.get_rank() == 0:
            saver.start()
            time.sleep(0.5)
        dist.all_reduce(torch.ones(10))
        if dist.get_rank() == 1:
            saver.start()
        saver.join()
