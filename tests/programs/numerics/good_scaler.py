"""A scaler that begins too high, as those of mixed precision do: steps with infinite gradients are left out.

Numerics: none
"""

from itertools import pairwise

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
own, skipped = 2.0**130, 0
for _ in range(20):
    optimizer.zero_grad()
    (model(torch.randn(8, 4)).square().mean() * own).backward()
    if all(p.grad.isfinite().all() for p in model.parameters()):
        for p in model.parameters():
            p.grad /= own
        optimizer.step()
    else:
        own, skipped = own / 2, skipped + 1
assert 0 < skipped < 20

scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=2)
scales = []
for _ in range(20):
    adam.zero_grad()
    scaler.scale(100 * model(torch.randn(8, 4)).square().mean() + 10).backward()
    scaler.step(adam)
    scaler.update()
    scales.append(scaler.get_scale())
assert any(b < a for a, b in pairwise(scales))
assert all(p.isfinite().all() for p in model.parameters())
dist.barrier()
del model, optimizer, adam
dist.destroy_process_group()
