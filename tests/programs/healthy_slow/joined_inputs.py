"""Rank 3 has a third of the others' batches and waits for them in Join, which is what Join is for.

Fools "a rank left the loop early", and a look at the stacks: rank 3 is in another collective than its peers.
Quiet for: 5 s
Verdict: none; exit: 0
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
with Join([model]):
    for _ in range(3 if dist.get_rank() == 3 else 9):
        time.sleep(4)
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
