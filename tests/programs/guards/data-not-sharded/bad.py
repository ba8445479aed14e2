"""Every rank goes through all of the data, in the same order.

Guard: data-not-sharded; line: for (x,) in loader:; ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_size=2, shuffle=True)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
