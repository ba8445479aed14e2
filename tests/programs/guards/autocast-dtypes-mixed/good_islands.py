"""An island of float32 inside of autocast, a region to the same type once more, and two types one after the other.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def forward(self, x):
        x = self.first(x)
        with torch.autocast("cpu", dtype=torch.float16, enabled=False):
            x = functional.softmax(x.float(), -1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.last(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(2, 4)).float().square().mean()
    with torch.autocast("cpu", dtype=torch.float16):
        functional.linear(torch.randn(2, 4), torch.randn(4, 4))
    loss.backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
