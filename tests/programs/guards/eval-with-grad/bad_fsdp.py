"""An evaluation of a sharded model, without no_grad; the training after it has graphs that are used.

Guard: eval-with-grad; line: return model(x).square().mean().item(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset


def score(model, x):
    return model(x).square().mean().item()


dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(16, 4) + dist.get_rank())
for _ in range(2):
    model.train()
    for (x,) in DataLoader(data, batch_size=2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    model.eval()
    for (x,) in DataLoader(data, batch_size=2):
        score(model, x)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
