"""The only norms are frozen ones, which do the same in both modes: train() is never called again.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class FrozenBatchNorm1d(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def forward(self, x):
        return (x - self.mean) / self.deviation


dist.init_process_group("gloo")
data, held_out = (TensorDataset(torch.randn(16, 4) + dist.get_rank()) for _ in range(2))
loader, held_out = DataLoader(data, batch_size=2), DataLoader(held_out, batch_size=2)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), FrozenBatchNorm1d(8), torch.nn.Linear(8, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for (x,) in held_out:
            model(x)
dist.barrier()
del model
dist.destroy_process_group()
