"""A SequentialLR, and a ChainedScheduler, whose warm-up is longer than the only pass.

Guard: warmup-too-long; line: return LinearLR(optimizer, 0.1, total_iters=500); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ChainedScheduler, CosineAnnealingLR, ExponentialLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset


def warmup(optimizer):
    return LinearLR(optimizer, 0.1, total_iters=500)


def sequence(optimizer):
    return SequentialLR(optimizer, [warmup(optimizer), CosineAnnealingLR(optimizer, T_max=30)], milestones=[500])


def chain(optimizer):
    return ChainedScheduler([warmup(optimizer), ExponentialLR(optimizer, 0.9999)])


dist.init_process_group("gloo")
data = TensorDataset(torch.randn(80, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
for schedule_of in (chain, sequence):
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = schedule_of(optimizer)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()
    del model
dist.barrier()
dist.destroy_process_group()
