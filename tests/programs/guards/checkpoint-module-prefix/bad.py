"""The state of the DDP wrapper is saved.

Guard: checkpoint-module-prefix; line: torch.save({"model": model.state_dict(), "step": 6}, io.BytesIO()); ranks: 0
"""

import io

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()

if dist.get_rank() == 0:
    torch.save({"model": model.state_dict(), "step": 6}, io.BytesIO())
dist.barrier()
del model
dist.destroy_process_group()
