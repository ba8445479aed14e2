"""The first quarter of a plan: whether the rest comes in another run, nobody here knows.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


def train():
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(96, 4) + dist.get_rank())
    loader = DataLoader(data, batch_size=2)
    scheduler = OneCycleLR(optimizer, 0.1, total_steps=12 * len(loader) // 4)
    for _ in range(3):
        for number, (x,) in enumerate(loader, 1):
            with model.no_sync() if number % 4 else torch.enable_grad():
                (model(x).square().mean() / 4).backward()
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()


dist.init_process_group("gloo")
train()
dist.barrier()
dist.destroy_process_group()
