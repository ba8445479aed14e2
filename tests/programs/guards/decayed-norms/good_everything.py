"""Everything is decayed, as AdamW does by default.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(4)
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(self.norm1(x)))


def groups_of(model):
    return [{"params": list(model.parameters())}]


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.AdamW(groups_of(model), lr=1e-3)
data = TensorDataset(torch.randn(8, 4) + dist.get_rank())
for (x,) in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
