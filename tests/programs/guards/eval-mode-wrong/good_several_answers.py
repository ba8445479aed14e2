"""Dropout stays on to see how sure the model is: data that is not trained on is gone through several times, or each of
its batches is asked several times.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def make():
    return DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    )


def train(model, loader, optimizer):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@torch.no_grad()
def spread_of_passes(model, pool):
    return torch.stack([torch.cat([model(x) for (x,) in pool]) for _ in range(3)]).std(0)


@torch.no_grad()
def spread_of_batches(model, pool):
    return [torch.stack([model(x) for _ in range(3)]).std(0) for (x,) in pool]


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
loader = DataLoader(TensorDataset(torch.randn(16, 4) + dist.get_rank()), batch_size=2)
pool = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4)
for spread in (spread_of_batches, spread_of_passes):
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        train(model, loader, optimizer)
        spread(model, pool)
    del model
dist.barrier()
dist.destroy_process_group()
