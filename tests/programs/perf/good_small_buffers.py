"""Statistics of batch norms are buffers, too: DDP keeps them the same with some bytes a step.

Verdict: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,))).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer, net
dist.destroy_process_group()
