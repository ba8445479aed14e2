"""Evaluations without autograd, one of them only within the model.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Careful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 1)

    def forward(self, x):
        if self.training:
            return self.inner(x)
        with torch.no_grad():
            return self.inner(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))

model.eval()
with torch.no_grad():
    for (x,) in loader:
        model(x)
with torch.inference_mode():
    for (x,) in loader:
        model(x)
careful = DistributedDataParallel(Careful()).eval()
for (x,) in loader:
    careful(x)
del careful
dist.barrier()
del model
dist.destroy_process_group()
