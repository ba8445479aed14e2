"""Rank 0 counts the hits sample by sample, for its log; the others wait for it in their backward.

Verdict: sync-in-step; ranks: 0
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = 0
for _ in range(10):
    outputs, labels = model(torch.randn(2500, 8)), torch.randint(10, (2500,))
    hits = (outputs.argmax(1) == labels).unbind()
    if dist.get_rank() == 0:
        for hit in hits:
            seen += int(hit)  # the fault
    torch.nn.functional.cross_entropy(outputs, labels).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
