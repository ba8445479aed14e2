"""Each rank keeps a part of the data of its own, and needs no distributed sampler.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset((torch.arange(64.0).reshape(16, 4) / 64)[dist.get_rank() :: dist.get_world_size()])
loader = DataLoader(data, batch_size=2)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
