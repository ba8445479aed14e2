"""A scaler that begins too high, as those of mixed precision do: steps with infinite gradients are left out.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=4)
scales = []
for _ in range(24):
    optimizer.zero_grad()
    scaler.scale(100 * model(torch.randn(256, 32)).square().mean() + 10).backward()
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
assert scales[-1] < 2.0**127
dist.barrier()
del model, optimizer
dist.destroy_process_group()
