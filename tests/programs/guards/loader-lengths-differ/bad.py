"""The items are dealt out as they come: rank 0 has more batches, and steps on alone with those that are left over.

Guard: loader-lengths-differ; line: for number, (x,) in enumerate(loader):; ranks: 0-1
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def one_epoch(model, loader, optimizer, shared):
    for number, (x,) in enumerate(loader):
        alone = number >= shared  # else it would wait for rank 1 for ever
        with model.no_sync() if alone else contextlib.nullcontext():
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(9, 4)[dist.get_rank() :: dist.get_world_size()] + dist.get_rank())
loader = DataLoader(data, batch_size=1)
for _ in range(2):
    one_epoch(model, loader, optimizer, 9 // dist.get_world_size())
dist.barrier()
del model
dist.destroy_process_group()
