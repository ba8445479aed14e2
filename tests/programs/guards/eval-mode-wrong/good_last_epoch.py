"""In the last epoch batch norm is frozen and dropout is off, and the script says so.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(16, 4) + dist.get_rank())
loader, held_out = DataLoader(data, batch_size=2), DataLoader(data, batch_size=4)
for epoch in range(3):
    model.train(epoch < 2)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for (x,) in held_out:
            model(x)
dist.barrier()
del model
dist.destroy_process_group()
