"""Only rank 0 evaluates, through the DDP wrapper, whose forward broadcasts the BatchNorm's buffers each time.

Under no_grad DDP would leave the broadcasts out from the second forward on, and the first would pair by luck.

Verdict: rank-conditional-collective; ranks: 0; says: evaluates_on_rank_0.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def evaluate(model):
    model.eval()
    total = sum(model(torch.ones(4, 8)).sum().item() for _ in range(3))
    model.train()
    return total


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 100):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    if step % 4 == 0 and dist.get_rank() == 0:
        print("evaluation:", evaluate(model), flush=True)
