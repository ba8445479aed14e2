"""A number of steps that all ranks agree on: each goes round and round its own part, and the parts differ in length.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def round_and_round(loader):
    while True:
        yield from loader


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(9, 4)[dist.get_rank() :: dist.get_world_size()] + dist.get_rank())
batches = round_and_round(DataLoader(data, batch_size=1, shuffle=True))
for _ in range(30):
    (x,) = next(batches)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
