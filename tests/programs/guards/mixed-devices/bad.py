"""One of the inputs stays on another device than the model: the first step raises.

Guard: mixed-devices; line: return model(x, shift=shift).square().mean(); ranks: 0-1
Ends: RuntimeError
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x, shift):
        return self.last(x) + self.last(shift)


def loss_of(model, x, shift):
    return model(x, shift=shift).square().mean()


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (x,) in DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=2):
    optimizer.zero_grad()
    loss_of(model, x, torch.ones(4, device="meta")).backward()
    optimizer.step()
