"""A saver gathers in a thread over a group of its own, while the main thread goes on to train.

Verdict: none; exit: 0
"""

import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(weight):
    parts = [torch.zeros_like(weight) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, weight, group=saving)


dist.init_process_group("gloo")
saving = dist.new_group()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if step == 8:
        saver = threading.Thread(target=save, args=(model.module.weight.detach().clone(),), name="saver_0")
        saver.start()
saver.join()
dist.barrier()
dist.destroy_process_group()
