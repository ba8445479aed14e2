"""Rank 1 leaves the loop because its own loss has become too large; the others are in the backward of the next step.

Verdict: collective-mismatch; ranks: 1; says: `break` at breaks_on_its_own_loss.py:20
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
shard = torch.ones(100, 8)
shard[12] *= 1 + 9 * (dist.get_rank() == 1)
for step, sample in enumerate(shard):
    loss = model(sample).square().mean() + sample.max()
    optimizer.zero_grad()
    loss.backward()
    if loss.item() > 9 and step > 10:
        break
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
