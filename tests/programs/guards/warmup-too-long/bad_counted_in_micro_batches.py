"""An epoch of warm-up, counted in micro-batches, moves with each step, of which there are four times fewer.

The training is a function: its schedule does not live to see the end.

Guard: warmup-too-long; line: scheduler = LinearLR(optimizer, 0.01, total_iters=len(loader)); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, TensorDataset


def train():
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(96, 4) + dist.get_rank())
    loader = DataLoader(data, batch_size=2)
    scheduler = LinearLR(optimizer, 0.01, total_iters=len(loader))
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
