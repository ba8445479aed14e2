"""A model that is compiled whole, with a shorter batch every other time: torch makes that length dynamic, once.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
model = DistributedDataParallel(torch.compile(net, backend="eager"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    model(torch.randn(5 if step % 2 else 8, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer, net
dist.destroy_process_group()
