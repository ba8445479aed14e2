"""A SequentialLR is past its warm-up, of which the last move is never made, or that is cut short; there is one pass.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(80, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
for total in (10, 20):
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first, second = LinearLR(optimizer, 0.1, total_iters=total), CosineAnnealingLR(optimizer, T_max=30)
    scheduler = SequentialLR(optimizer, [first, second], milestones=[10])
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()
    del model
dist.barrier()
dist.destroy_process_group()
