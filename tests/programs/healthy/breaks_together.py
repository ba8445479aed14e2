"""The ranks add up whose loss has become too large, and leave the loop together.

Verdict: none; exit: 0
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
shard = torch.ones(100, 8)
shard[12] *= 1 + 9 * (dist.get_rank() == 1)
for sample in shard:
    loss = model(sample).square().mean() + sample.max()
    optimizer.zero_grad()
    loss.backward()
    too_large = torch.tensor(float(loss.item() > 9))
    dist.all_reduce(too_large)
    if too_large > 0:
        break
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
