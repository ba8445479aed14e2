"""A warm-up that ends in the first epoch; a LinearLR that falls; a rise of the script's own without a warm-up's name.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset


def warmed(optimizer):
    first, second = LinearLR(optimizer, 0.1, total_iters=10), CosineAnnealingLR(optimizer, T_max=30)
    return SequentialLR(optimizer, [first, second], milestones=[10])


def falling(optimizer):
    return LinearLR(optimizer, 1.0, 0.1, total_iters=500)


def rising(optimizer):
    return LambdaLR(optimizer, lambda step: (step + 1) / 500)


dist.init_process_group("gloo")
data = TensorDataset(torch.randn(40, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
for schedule_of in (warmed, falling, rising):
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = schedule_of(optimizer)
    for _ in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            scheduler.step()
    del model
dist.barrier()
dist.destroy_process_group()
