"""What others make in each step is made once; a transposed table is used as the view that it is.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
table, mask = torch.randn(256, 256).t(), torch.ones(256, 256)
padded = torch.zeros(256, 64)
for _ in range(12):
    padded.zero_()
    padded[:32] = torch.randn(32, 64)
    ((model(padded) @ table) * mask).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
