"""The sampler of the evaluation has one order on purpose; that of the training counts its epochs by itself.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Counting(DistributedSampler):
    def __iter__(self):
        self.set_epoch(self.epoch + 1)
        return super().__iter__()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
forked = {"num_workers": 1, "multiprocessing_context": "fork"}  # so that this file needs no `if __name__`
training = DataLoader(data, batch_size=2, sampler=Counting(data), persistent_workers=True, **forked)
evaluation = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
shuffled = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=True))
for _epoch in range(3):
    for (x,) in training:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    with torch.no_grad():
        for (x,) in evaluation:
            model(x)
        for (x,) in shuffled:
            model(x)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
