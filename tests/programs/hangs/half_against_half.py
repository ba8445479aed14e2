"""The second node runs an older version, which has a barrier where the first one sums: two against two, a tie.

Verdict: collective-mismatch; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
version = "1.4" if dist.get_rank() >= 2 else "1.5"
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(1, 100):
    loss = model(torch.ones(4, 8)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 4 == 0 and version == "1.4":
        dist.barrier()
    elif step % 4 == 0:
        dist.all_reduce(loss.detach())
