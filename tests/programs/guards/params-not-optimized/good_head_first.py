"""The head is trained alone at first, then everything by another optimizer, which steps outside of windows.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
head = torch.optim.AdamW(model.module[1].parameters(), lr=1e-3)
everything = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(40):
    optimizer = head if step < 20 else everything
    model.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer, head, everything
dist.destroy_process_group()
