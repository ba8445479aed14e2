"""Each rank has an expert of its own, which DDP is told to leave alone.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["1.weight", "1.bias"])
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(14):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
