"""The same transposed table is made contiguous for each part of the batch anew.

Verdict: non-contiguous-hot; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
table = torch.randn(1024, 1024).t()
for _ in range(10):
    outputs = model(torch.randn(4, 64))
    loss = 0
    for part in outputs:
        loss = loss + (part * table.contiguous()[0]).mean()  # the fault
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
