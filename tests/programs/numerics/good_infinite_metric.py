"""A metric that is infinite by design, an evaluation with NaN in it, and a script that leaves bad batches out.

Numerics: none
"""

import copy
import io

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
best = float("inf")
for step in range(12):
    x = torch.randn(8, 4)
    if step == 4:
        x[0] = float("nan")
    optimizer.zero_grad()
    loss = model(x).square().mean()
    perplexity = (loss.detach() * 1e6).exp()
    loss.backward()
    if loss.isfinite():
        optimizer.step()
        best = min(best, loss.item())
    with torch.no_grad():
        model(torch.full((2, 4), float("nan")))
    if step % 4 == 0:
        average = copy.deepcopy(model.module)
        average(x)
        torch.save(model.module, io.BytesIO())
dist.barrier()
del model, optimizer
dist.destroy_process_group()
