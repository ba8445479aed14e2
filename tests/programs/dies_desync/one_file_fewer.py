"""Rank 1's share of the files is one shorter: its loop ends, while rank 0 is in the backward of one more batch.

Which one is wrong, the record does not show: rank 0 may have a file too many.

Verdict: collective-mismatch; ranks: 0-1; exit: 1; says: Rank 1 has left the loop at one_file_fewer.py:18
On two ranks.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
files = [f"part-{n}" for n in range(21)][dist.get_rank() :: 2]
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(3):
    for _name in files:
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
    total = loss.detach().reshape(1)
    dist.all_reduce(total)
