"""One seed for the initial weights, and then another one for each rank.

Guard: none
Modes: seeds-identical=warn
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (x,) in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def build(dropped):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(dropped), torch.nn.Linear(8, 1))


dist.init_process_group("gloo")
torch.manual_seed(42)
model = DistributedDataParallel(build(0.1))
data = TensorDataset(torch.randn(64, 4))
torch.manual_seed(42 + dist.get_rank())
train(model, data)
dist.barrier()
del model
dist.destroy_process_group()
