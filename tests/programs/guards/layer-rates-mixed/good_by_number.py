"""Each layer has a rate of its own, the head the full one.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(12))
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def groups_of(model):
    groups = [
        {"params": list(layer.parameters()), "lr": 1e-3 * 0.8 ** (12 - number)}
        for number, layer in enumerate(model.module.layers)
    ]
    return [*groups, {"params": list(model.module.head.parameters())}]


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
