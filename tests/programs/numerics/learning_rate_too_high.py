"""The weights grow with each step until the square in the loss overflows.

Numerics: non-finite; error; ranks: 0-1; says: the loss is not finite, and all modules' outputs are
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=50.0)
x, y = torch.randn(32, 8), torch.randn(32, 1)
for _ in range(30):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
dist.barrier()
del model, optimizer, net
dist.destroy_process_group()
