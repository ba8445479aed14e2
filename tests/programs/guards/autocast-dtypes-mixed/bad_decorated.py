"""A forward that is decorated with one type, in a training under the other.

Guard: autocast-dtypes-mixed; line: @torch.autocast("cpu", dtype=torch.float16); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(4, 1)

    @torch.autocast("cpu", dtype=torch.float16)
    def forward(self, x):
        return self.last(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(2, 4)).float().square().mean()
    loss.backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
