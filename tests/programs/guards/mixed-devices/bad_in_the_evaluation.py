"""The training moves its batches, the evaluation behind it does not; what it raises is said in other words on the way.

Guard: mixed-devices; line: scores += [model(batch["x"]).sum() for batch in loader]; ranks: 0-1
Ends: SystemExit
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.last(x)


def held_out(items):
    return DataLoader([{"x": x} for x in items], batch_size=2)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    scores = []
    scores += [model(batch["x"]).sum() for batch in loader]
    return scores


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (x,) in DataLoader(TensorDataset(torch.randn(16, 4) + dist.get_rank()), batch_size=2):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
try:
    evaluate(model, held_out(torch.randn(8, 4, device="meta")))
except RuntimeError as error:
    print("the evaluation failed:", error)
    sys.exit(1)
