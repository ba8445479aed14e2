"""The norm of one layer is found by no pattern, and has the rate of the rest.

Guard: layer-rates-mixed; line: optimizer.step(); ranks: 0-1
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
    groups, left = [], dict(model.named_parameters())
    for number in range(12):
        names = [
            name for name in left if name.startswith(f"module.layers.{number}.") and name != "module.layers.5.bias"
        ]
        groups.append({"params": [left.pop(name) for name in names], "lr": 1e-3 * 0.8 ** (12 - number)})
    return [*groups, {"params": list(left.values())}]


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
