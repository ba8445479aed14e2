"""Before each of its exports batch norm takes its statistics anew, from a part of what is trained on.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset


@torch.no_grad()
def take_statistics(model, loader):
    for (x,) in loader:
        model(x)


dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(16, 4) + dist.get_rank())
for _ in range(3):
    for (x,) in DataLoader(data, batch_size=2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    take_statistics(model, DataLoader(Subset(data, range(12)), batch_size=4))
dist.barrier()
del model
dist.destroy_process_group()
