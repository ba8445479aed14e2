"""Rank 0 writes a line a step, and the others none.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(12):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}", flush=True)
dist.barrier()
del model, optimizer, loss
dist.destroy_process_group()
