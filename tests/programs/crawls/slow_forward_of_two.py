"""Of two ranks, rank 1 looks its batch up in each forward, and rank 0 waits for it in backward.

Verdict: straggler; ranks: 1; says: forward; late at: slow_forward_of_two.py:16
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class LooksUp(torch.nn.Linear):
    def forward(self, batch):
        time.sleep(0.1 if dist.get_rank() == 1 else 0)
        return super().forward(batch)


dist.init_process_group("gloo")
model = DistributedDataParallel(LooksUp(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(300):
    if step == 30:
        print("warm", flush=True)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del model, optimizer
dist.destroy_process_group()
