"""A softmax over one class: its logarithm is 0, whatever the model says.

Guard: loss-never-changes; line: loss.backward(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.zeros(8, dtype=torch.long))
    loss.backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
